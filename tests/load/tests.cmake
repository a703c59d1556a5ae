# The load client, and the real binary under load. Limits on latency are checked by hand alone, with nothing beside them.
target_link_libraries(load_suite PRIVATE ibid_load)
add_dependencies(load_suite ibid)
if(TEST load_suite_slow)
  add_test(NAME load_suite_wall_clock COMMAND load_suite --gtest_brief=1 --gtest_filter=SlowPressure.*:SlowSiege.*)
  set_tests_properties(load_suite_wall_clock PROPERTIES LABELS by_hand TIMEOUT 1500 RUN_SERIAL TRUE
    ENVIRONMENT IBID_WALL_CLOCK=1)
endif()
