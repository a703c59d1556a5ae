# OBJECTS needs quotes that survive: a list in a command line.
add_test(NAME isa_symbols COMMAND ${CMAKE_COMMAND} -DNM=${CMAKE_NM} "-DOBJECTS=$<TARGET_OBJECTS:ibid_kernels>"
  -P ${CMAKE_SOURCE_DIR}/tests/parity/check_isa_symbols.cmake)
set_tests_properties(isa_symbols PROPERTIES LABELS quick TIMEOUT 60)
