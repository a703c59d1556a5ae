target_link_libraries(ibid_server ${scope} OpenSSL::Crypto)

# The page, built into the binary: plain files, of which bundle_page.py makes one script and one style sheet.
find_package(Python3 REQUIRED COMPONENTS Interpreter)
file(GLOB page_sources CONFIGURE_DEPENDS src/server/page/*)
set(page_files_cc ${CMAKE_BINARY_DIR}/generated/server/page_files.cc)
set(bundle_page ${CMAKE_SOURCE_DIR}/src/server/bundle_page.py)
add_custom_command(OUTPUT ${page_files_cc}
  COMMAND ${Python3_EXECUTABLE} ${bundle_page} ${CMAKE_SOURCE_DIR}/src/server/page ${page_files_cc}
  DEPENDS ${page_sources} ${bundle_page})
target_sources(ibid_server PRIVATE ${page_files_cc})
