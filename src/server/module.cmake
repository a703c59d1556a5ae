target_link_libraries(ibid_server ${scope} OpenSSL::Crypto)

# The page, built into the binary.
file(GLOB page_sources CONFIGURE_DEPENDS src/server/page/*)
set(page_files_cc ${CMAKE_BINARY_DIR}/generated/server/page_files.cc)
add_custom_command(OUTPUT ${page_files_cc}
  COMMAND ${CMAKE_COMMAND} -DOUT=${page_files_cc} -DDIR=${CMAKE_SOURCE_DIR}/src/server/page -P ${CMAKE_SOURCE_DIR}/src/server/embed.cmake
  DEPENDS ${page_sources} ${CMAKE_SOURCE_DIR}/src/server/embed.cmake)
target_sources(ibid_server PRIVATE ${page_files_cc})
