# The fuzz targets with libFuzzer (cmake --preset fuzz; clang 16 or newer):
#   build/fuzz/gguf_fuzz -max_len=8192 tests/fuzz/corpus/gguf
# g++ is the compiler whose warnings are errors.
target_compile_options(ibid_flags INTERFACE -fsanitize=fuzzer-no-link -Wno-unknown-warning-option -Wno-error)
file(GLOB fuzz_targets CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/fuzz/*_fuzz.cc)
foreach(source ${fuzz_targets})
  get_filename_component(target ${source} NAME_WE)
  add_executable(${target} ${source})
  target_link_libraries(${target} PRIVATE ibid_format ibid_image ibid_text_jinja ibid_sample_grammar)
  if(target STREQUAL "options_fuzz")
    target_link_libraries(${target} PRIVATE ibid_cli)
  endif()
  target_link_options(${target} PRIVATE -fsanitize=fuzzer)
endforeach()
