target_compile_options(ibid_cli PRIVATE ${IBID_COLD})
# The line editor; static, like all but the C library and OpenSSL.
find_library(EDIT libedit.a REQUIRED)
find_library(TINFO libtinfo.a REQUIRED)
find_library(BSD libbsd.a REQUIRED)
find_library(MD libmd.a REQUIRED)
target_link_libraries(ibid_cli PRIVATE ${EDIT} ${TINFO} ${BSD} ${MD})
add_executable(ibid src/cli/main.cc)
target_link_libraries(ibid PRIVATE ibid_cli)
# The draft head of the default model is a part of the program.
set(own_eagle ${CMAKE_SOURCE_DIR}/src/cli/heads/smollm2-135m-instruct.gguf)
ibid_apart(src/cli/own_eagle.cc)
set_source_files_properties(src/cli/own_eagle.cc PROPERTIES
  COMPILE_DEFINITIONS "IBID_OWN_EAGLE=\"${own_eagle}\"" OBJECT_DEPENDS ${own_eagle})
