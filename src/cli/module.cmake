target_compile_options(ibid_cli PRIVATE ${IBID_COLD})
# The library leaves out what is the command line's.
target_compile_options(ibid_cli PRIVATE -ffunction-sections -fdata-sections)
# The line editor; static, like all but the C library and OpenSSL.
find_library(EDIT libedit.a REQUIRED)
find_library(TINFO libtinfo.a REQUIRED)
find_library(BSD libbsd.a REQUIRED)
find_library(MD libmd.a REQUIRED)
# libibid.so, whose linker drops all that would call it, has no place for the versions of libbsd's symbols.
target_link_libraries(ibid_cli INTERFACE
  "$<$<NOT:$<STREQUAL:$<TARGET_PROPERTY:TYPE>,SHARED_LIBRARY>>:${EDIT};${TINFO};${BSD};${MD}>")
add_executable(ibid src/cli/main.cc)
target_link_libraries(ibid PRIVATE ibid_cli)
ibid_apart(src/cli/imatrix.cc)
