target_include_directories(ibid_capi PUBLIC ${CMAKE_SOURCE_DIR}/include)
target_compile_options(ibid_capi PRIVATE ${IBID_COLD})
# One file with all that ibid is, but for the C library and OpenSSL: it goes into processes that have other versions of
# the C++ library. Its number is the ABI's (IBID_ABI_VERSION in include/ibid.h).
if(NOT IBID_SANITIZE AND NOT IBID_FUZZ)
  set(exports ${CMAKE_SOURCE_DIR}/src/capi/libibid.map)
  add_library(libibid SHARED $<TARGET_OBJECTS:ibid_capi>)
  set_target_properties(libibid PROPERTIES OUTPUT_NAME ibid SOVERSION 1 VERSION 1.${PROJECT_VERSION}
    LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR} LINKER_LANGUAGE CXX LINK_DEPENDS ${exports})
  target_link_libraries(libibid PRIVATE ibid_cli)
  target_link_options(libibid PRIVATE -static-libstdc++ -static-libgcc -Wl,--version-script=${exports}
    -Wl,--gc-sections -Wl,--no-undefined -Wl,-z,text)
  target_include_directories(libibid INTERFACE ${CMAKE_SOURCE_DIR}/include)
endif()
