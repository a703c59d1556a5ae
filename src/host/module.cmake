target_compile_options(ibid_host PRIVATE ${IBID_COLD})
# The draft head of the default model is a part of the program.
set(own_eagle ${CMAKE_SOURCE_DIR}/src/host/heads/smollm2-135m-instruct.gguf)
ibid_apart(src/host/own_eagle.cc)
set_source_files_properties(src/host/own_eagle.cc PROPERTIES
  COMPILE_DEFINITIONS "IBID_OWN_EAGLE=\"${own_eagle}\"" OBJECT_DEPENDS ${own_eagle})
