# The simulation as objects: sim_suite has it over the engine, build/sim by hand, and tests/planted over an engine with
# faults.
add_library(sim_objects OBJECT ${CMAKE_CURRENT_LIST_DIR}/script.cc ${CMAKE_CURRENT_LIST_DIR}/inputs.cc
  ${CMAKE_CURRENT_LIST_DIR}/solo.cc ${CMAKE_CURRENT_LIST_DIR}/start.cc
  ${CMAKE_CURRENT_LIST_DIR}/simulation.cc ${CMAKE_CURRENT_LIST_DIR}/judge.cc
  ${CMAKE_CURRENT_LIST_DIR}/cache_oracle.cc ${CMAKE_CURRENT_LIST_DIR}/replay.cc)
target_link_libraries(sim_objects PUBLIC ibid_flags)
target_include_directories(sim_objects PUBLIC ${CMAKE_SOURCE_DIR}/tests)
set_target_properties(sim_objects PROPERTIES UNITY_BUILD ON)
target_link_libraries(sim_suite PRIVATE sim_objects)
add_executable(sim ${CMAKE_CURRENT_LIST_DIR}/main.cc)
target_link_libraries(sim PRIVATE sim_objects ibid_engine)
