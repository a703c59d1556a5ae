# One program over an engine with faults: only what has PLANTED() in it is compiled once more. What the libraries below
# bring of the same modules is never taken, for the objects come first and leave nothing undefined.
file(GLOB planted_sources CONFIGURE_DEPENDS src/engine/*.cc src/engine/record/*.cc src/cache/*.cc
  src/spec/*.cc src/spec/experimental/*.cc src/worker/*.cc)
list(FILTER planted_sources EXCLUDE REGEX "_test\\.cc$")
add_library(planted_engine OBJECT ${planted_sources})
target_compile_definitions(planted_engine PRIVATE IBID_PLANTED)
target_link_libraries(planted_engine PUBLIC ibid_flags)
if(IBID_UNITY)
  set_target_properties(planted_engine PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 12)
endif()
# Of the grammars only the files that have a fault: the rest of their library fits beside these.
get_property(planted_grammar_sources GLOBAL PROPERTY ibid_planted_grammar)
add_library(planted_grammar OBJECT ${planted_grammar_sources})
target_compile_definitions(planted_grammar PRIVATE IBID_PLANTED)
target_link_libraries(planted_grammar PUBLIC ibid_flags)
file(GLOB unit_tests CONFIGURE_DEPENDS src/cache/*_test.cc src/engine/scheduler_test.cc
  src/engine/pace_test.cc src/engine/fairness_test.cc src/engine/step_cost_test.cc
  src/engine/disk_tier_test.cc src/engine/ledger_test.cc src/engine/grammar_test.cc src/engine/search_test.cc
  src/engine/reasoning_test.cc src/engine/speculation_test.cc src/engine/verification_test.cc src/engine/draft_model_test.cc src/engine/speculative_speed_test.cc
  src/engine/window_proposer_test.cc
  src/engine/rejection_test.cc src/engine/encoder_test.cc src/engine/hidden_of_drawn_rows_test.cc src/engine/taps_test.cc src/engine/refused_drafts_test.cc
  src/engine/record/*_test.cc src/spec/*_test.cc src/spec/experimental/*_test.cc)
# The tests of grammars do not know of faults, and are not compiled again.
set(grammar_tests "$<FILTER:$<TARGET_OBJECTS:sample_test>,INCLUDE,sample/grammar/(grammars|languages|lazy|masks|schema|states)_test>")
add_executable(planted_suite ${CMAKE_CURRENT_LIST_DIR}/planted_faults.cc ${unit_tests} "${grammar_tests}")
target_link_libraries(planted_suite PRIVATE planted_engine planted_grammar sim_objects ibid_model ibid_sample_grammar ibid_sample ibid_text
  ibid_source_paths
  GTest::gtest_main ${RAPIDCHECK})
target_include_directories(planted_suite PRIVATE ${CMAKE_SOURCE_DIR})
add_test(NAME planted_suite COMMAND planted_suite --gtest_brief=1 --gtest_filter=*Planted*)
set_tests_properties(planted_suite PROPERTIES LABELS quick TIMEOUT 600)
