# Every tests/fuzz/X_fuzz.cc is replayed over tests/fuzz/corpus/X in the quick suite; cmake/fuzz.cmake builds the real
# fuzzers with clang. What they fuzz lies in format/ and below; a target for a higher floor links it here and there.
file(GLOB fuzz_targets CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/fuzz/*_fuzz.cc)
foreach(source ${fuzz_targets})
  get_filename_component(target ${source} NAME_WE)
  string(REGEX REPLACE "_fuzz$" "" corpus ${target})
  add_executable(${target}_replay ${source} ${CMAKE_SOURCE_DIR}/tests/fuzz/replay_main.cc)
  target_link_libraries(${target}_replay PRIVATE ibid_format ibid_text_jinja ibid_sample_grammar)
  if(target STREQUAL "options_fuzz")
    target_link_libraries(${target}_replay PRIVATE ibid_cli)
  endif()
  add_test(NAME ${target}_replay COMMAND ${target}_replay ${CMAKE_SOURCE_DIR}/tests/fuzz/corpus/${corpus})
  set_tests_properties(${target}_replay PROPERTIES LABELS quick TIMEOUT 300)
endforeach()
