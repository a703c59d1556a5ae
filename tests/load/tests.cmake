# The load client, and the real binary under load. Latency is measured, so nothing may run beside the slow ones, but for
# the siege that watches memory: it takes its minutes whoever runs beside it.
target_link_libraries(load_suite PRIVATE ibid_load)
add_dependencies(load_suite ibid)
if(TEST load_suite_slow)
  set_tests_properties(load_suite_slow PROPERTIES RUN_SERIAL TRUE)
endif()
