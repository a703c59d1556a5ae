# OBJECTS needs quotes that survive: a list in a command line.
add_test(NAME isa_symbols COMMAND ${CMAKE_COMMAND} -DNM=${CMAKE_NM} "-DOBJECTS=$<TARGET_OBJECTS:ibid_kernels>"
  -P ${CMAKE_SOURCE_DIR}/tests/parity/check_isa_symbols.cmake)
set_tests_properties(isa_symbols PROPERTIES LABELS quick TIMEOUT 60)

# AVX-VNNI's products are AVX-512 VNNI's with another prefix, which a machine of servers can run: the same assembly,
# assembled with that one, goes through the same suite.
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64" AND NOT IBID_SANITIZE)
  set(products ${CMAKE_SOURCE_DIR}/src/kernels/cpu/avx2_vnni/linear.cc)
  get_source_file_property(flags ${products} DIRECTORY ${CMAKE_SOURCE_DIR} COMPILE_OPTIONS)
  add_custom_command(OUTPUT evex_products.o
    COMMAND ${CMAKE_CXX_COMPILER} -std=c++20 -DNDEBUG -ffp-contract=off -fno-math-errno -fno-trapping-math -fPIE ${flags}
      -I${CMAKE_SOURCE_DIR}/src -MD -MT evex_products.o -MF evex_products.d -S -o evex_products.s ${products}
    COMMAND sed -i "s/{vex}//" evex_products.s
    COMMAND ${CMAKE_CXX_COMPILER} -c -o evex_products.o evex_products.s
    DEPENDS ${products} DEPFILE evex_products.d COMMAND_EXPAND_LISTS VERBATIM)
  file(READ ${CMAKE_SOURCE_DIR}/src/kernels/isa.cc isa)
  string(REPLACE "\"avxvnni\"" "\"avx512vnni\"" isa "${isa}")
  file(CONFIGURE OUTPUT evex_isa.cc CONTENT "${isa}" @ONLY)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/kernels/isa.cc)
  # Its own definitions come before those of the library, whose members are then not taken.
  add_executable(parity_suite_evex ${CMAKE_CURRENT_BINARY_DIR}/evex_isa.cc ${CMAKE_CURRENT_BINARY_DIR}/evex_products.o
    $<TARGET_OBJECTS:parity_suite>)
  get_target_property(libraries parity_suite LINK_LIBRARIES)
  target_link_libraries(parity_suite_evex PRIVATE ${libraries})
  add_test(NAME parity_suite_evex COMMAND parity_suite_evex --gtest_filter=-*Slow*:*Attention*:CudaSeam*)
  set_tests_properties(parity_suite_evex PROPERTIES LABELS slow TIMEOUT 900)
endif()
