# One program over an engine with faults (docs/developers/planted_faults.md): the modules that have one are compiled once
# more, from copies of the files that faults.txt names and from all others as they are. What the libraries below bring of the
# same modules is never taken, for the objects come first and leave nothing undefined.
set(planted_table ${CMAKE_CURRENT_LIST_DIR}/faults.txt)
set(planted_dir ${CMAKE_BINARY_DIR}/planted)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${planted_table})
file(STRINGS ${planted_table} planted_files REGEX "^file ")
list(TRANSFORM planted_files REPLACE "^file " "")
list(TRANSFORM planted_files PREPEND ${CMAKE_SOURCE_DIR}/ OUTPUT_VARIABLE planted_originals)
list(TRANSFORM planted_files PREPEND ${planted_dir}/ OUTPUT_VARIABLE planted_copies)
add_custom_command(OUTPUT ${planted_copies}
  COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_LIST_DIR}/plant.py ${CMAKE_SOURCE_DIR} ${planted_table} ${planted_dir}
  DEPENDS ${planted_table} ${CMAKE_CURRENT_LIST_DIR}/plant.py ${planted_originals} VERBATIM)
add_custom_target(planted_copies DEPENDS ${planted_copies})

file(GLOB_RECURSE planted_engine_sources RELATIVE ${CMAKE_SOURCE_DIR} CONFIGURE_DEPENDS src/engine/*.cc src/cache/*.cc src/spec/*.cc
  src/worker/*.cc)
file(GLOB_RECURSE planted_model_sources RELATIVE ${CMAKE_SOURCE_DIR} CONFIGURE_DEPENDS src/model/*.cc)
file(GLOB planted_image_sources RELATIVE ${CMAKE_SOURCE_DIR} CONFIGURE_DEPENDS src/image/*.cc)
foreach(part engine model image)
  list(FILTER planted_${part}_sources EXCLUDE REGEX "_(test|fuzz)\\.cc$")
endforeach()
# Of the grammars only the files that have a fault: the rest of their library fits beside these.
set(planted_grammar_sources ${planted_files})
list(FILTER planted_grammar_sources INCLUDE REGEX "^src/sample/grammar/.*\\.cc$")
# And so the kernels.
set(planted_kernel_sources ${planted_files})
list(FILTER planted_kernel_sources INCLUDE REGEX "^src/kernels/.*\\.cc$")
set(planted_format_sources ${planted_files})
list(FILTER planted_format_sources INCLUDE REGEX "^src/format/.*\\.cc$")
foreach(part engine model image grammar kernel format)
  set(sources)
  foreach(source ${planted_${part}_sources})
    if(source IN_LIST planted_files)
      list(APPEND sources ${planted_dir}/${source})
      if(source MATCHES "^src/model/(arch/|quantise_folder|group_quantise)")  # apart: each has names of its own
        ibid_apart(${planted_dir}/${source})
      endif()
    else()
      list(APPEND sources ${CMAKE_SOURCE_DIR}/${source})
    endif()
  endforeach()
  add_library(planted_${part} OBJECT ${sources})
  add_dependencies(planted_${part} planted_copies)
  target_include_directories(planted_${part} BEFORE PRIVATE ${planted_dir}/src ${CMAKE_SOURCE_DIR}/tests)
  target_link_libraries(planted_${part} PUBLIC ibid_flags)
  if(IBID_UNITY AND NOT part MATCHES "grammar|kernel|format")
    set_target_properties(planted_${part} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 12)
  endif()
endforeach()
file(GLOB unit_tests CONFIGURE_DEPENDS src/cache/*_test.cc src/engine/schedule/scheduler_test.cc
  src/engine/pace_test.cc tests/sim/forecast_test.cc src/engine/fairness_test.cc src/engine/state/step_cost_test.cc
  src/engine/disk_tier_test.cc src/engine/disk_states_test.cc src/engine/ledger_test.cc src/engine/grammar_test.cc src/engine/search_test.cc
  src/engine/reasoning_test.cc src/engine/step/speculation_test.cc src/engine/verification_test.cc src/engine/draft_model_test.cc src/engine/speculative_speed_test.cc
  src/engine/window_proposer_test.cc
  src/engine/rejection_test.cc src/engine/encoder_test.cc src/engine/hidden_of_drawn_rows_test.cc src/engine/taps_test.cc src/engine/refused_drafts_test.cc
  src/engine/adapters_test.cc src/engine/kv_eviction_test.cc tests/parity/keep_rows_test.cc src/engine/picture_encoder_test.cc tests/golden/vision_test.cc tests/property/pictures_test.cc tests/property/kv_eviction_test.cc src/model/adapters_test.cc src/model/linear_layer_test.cc
  src/model/config_test.cc src/model/naive_reference_test.cc src/model/turned_experts_test.cc src/model/out_scale_test.cc src/model/quantised_folder_test.cc src/model/latent_attention_test.cc src/model/bad_ggufs_test.cc tests/golden/convert_test.cc tests/golden/imatrix_test.cc src/format/type_rules_test.cc tests/golden/group_quantise_test.cc tests/golden/quantise_folder_test.cc tests/parity/attention_codes_test.cc tests/parity/experts_test.cc tests/parity/recurrent_test.cc
  src/image/*_test.cc
  src/engine/record/*_test.cc src/spec/*/*_test.cc tests/property/engine_property_test.cc)
# The tests of grammars do not know of faults, and are not compiled again.
set(grammar_tests "$<FILTER:$<TARGET_OBJECTS:sample_test>,INCLUDE,sample/grammar/(grammars|languages|lazy|masks|schema|states)_test>")
add_executable(planted_suite ${CMAKE_CURRENT_LIST_DIR}/planted_faults.cc ${unit_tests} "${grammar_tests}")
target_link_libraries(planted_suite PRIVATE planted_engine planted_model planted_image planted_grammar planted_kernel planted_format sim_objects ibid_image ibid_model ibid_sample_grammar ibid_sample ibid_text
  ibid_source_paths
  GTest::gtest_main ${RAPIDCHECK})
target_include_directories(planted_suite PRIVATE ${CMAKE_SOURCE_DIR} ${CMAKE_SOURCE_DIR}/tests)
add_test(NAME planted_suite COMMAND planted_suite --gtest_brief=1 --gtest_filter=*Planted*)
set_tests_properties(planted_suite PROPERTIES LABELS quick TIMEOUT 1800)
