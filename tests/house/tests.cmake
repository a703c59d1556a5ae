# The checks of the house itself.
find_package(Python3 COMPONENTS Interpreter REQUIRED)
add_test(NAME house_includes COMMAND ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/tools/check_includes.py ${CMAKE_SOURCE_DIR})
add_test(NAME house_docs COMMAND ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/tools/check_docs.py ${CMAKE_SOURCE_DIR})
add_test(NAME house_checks COMMAND ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/tests/house/checks_test.py ${CMAKE_SOURCE_DIR})
add_test(NAME house_bundle COMMAND ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/tests/house/bundle_test.py ${CMAKE_SOURCE_DIR})
add_test(NAME house_compare COMMAND ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/tests/house/compare_test.py ${CMAKE_SOURCE_DIR})
add_test(NAME house_to_safetensors COMMAND ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/tests/house/to_safetensors_test.py ${CMAKE_SOURCE_DIR})
add_test(NAME house_if_changed COMMAND ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/tests/house/if_changed_test.py ${CMAKE_SOURCE_DIR})
add_test(NAME house_held_out COMMAND ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/tests/house/held_out_test.py ${CMAKE_SOURCE_DIR})
set_tests_properties(house_includes house_docs house_checks house_bundle house_compare house_to_safetensors house_if_changed house_held_out PROPERTIES LABELS quick)
find_program(CLANG_FORMAT NAMES clang-format-14 clang-format)
if(CLANG_FORMAT)
  file(GLOB_RECURSE formatted CONFIGURE_DEPENDS src/*.h src/*.cc src/*.inl tests/*.h tests/*.cc bench/*.cc)
  list(FILTER formatted EXCLUDE REGEX "generated|_tables?\\.cc$|_data\\.cc$")
  file(WRITE ${CMAKE_BINARY_DIR}/formatted.txt "")
  foreach(source ${formatted})
    file(APPEND ${CMAKE_BINARY_DIR}/formatted.txt "${source}\n")
  endforeach()
  add_test(NAME house_format COMMAND xargs -a ${CMAKE_BINARY_DIR}/formatted.txt ${CLANG_FORMAT} --dry-run -Werror)
  set_tests_properties(house_format PROPERTIES LABELS quick)
endif()
add_test(NAME selftest COMMAND ibid selftest)
set_tests_properties(selftest PROPERTIES LABELS quick FAIL_REGULAR_EXPRESSION "FAIL")
# What tests/house/arm64.sh compiles for ARM: tests that hold bits to checked-in digests or to a law.
file(GLOB sources CONFIGURE_DEPENDS tests/parity/*_test.cc)
add_executable(arm64_suite EXCLUDE_FROM_ALL ${sources} tests/property/exactness_test.cc
  tests/property/pinned_answers_test.cc
  src/image/decode_test.cc src/image/resize_test.cc src/image/patches_test.cc
  src/model/arithmetic_version_test.cc src/sample/noise_test.cc src/sample/sampling_digest_test.cc)
target_compile_options(arm64_suite PRIVATE -O1)  # what is tested is in the modules
target_link_libraries(arm64_suite PRIVATE ibid_engine ibid_image ibid_source_paths GTest::gtest_main ${RAPIDCHECK})
target_include_directories(arm64_suite PRIVATE ${CMAKE_SOURCE_DIR} ${CMAKE_SOURCE_DIR}/tests)
if(NOT IBID_SANITIZE)
  # These run only where a file that they can see has changed since they last passed on this machine.
  set(if_changed ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/tests/house/if_changed.py ${CMAKE_SOURCE_DIR})
  add_test(NAME fresh_machine COMMAND ${if_changed} fresh_machine ${CMAKE_SOURCE_DIR}/tests/house/fresh_machine.sh
    ${CMAKE_SOURCE_DIR} ${CMAKE_BINARY_DIR}/fresh_machine)
  set_tests_properties(fresh_machine PROPERTIES LABELS slow TIMEOUT 2400 SKIP_RETURN_CODE 77 RUN_SERIAL TRUE)
  add_test(NAME packages_life COMMAND ${CMAKE_SOURCE_DIR}/tests/house/packages.sh ${CMAKE_SOURCE_DIR} ${CMAKE_BINARY_DIR}
    ${CMAKE_BINARY_DIR}/packages_life)
  set_tests_properties(packages_life PROPERTIES LABELS by_hand TIMEOUT 1200 SKIP_RETURN_CODE 77 RUN_SERIAL TRUE)
  add_test(NAME arm64 COMMAND ${if_changed} arm64 ${CMAKE_SOURCE_DIR}/tests/house/arm64.sh ${CMAKE_SOURCE_DIR}
    ${CMAKE_BINARY_DIR}/arm64)
  set_tests_properties(arm64 PROPERTIES LABELS slow TIMEOUT 3600 SKIP_RETURN_CODE 77 COST 2500)
  add_test(NAME memcheck COMMAND ${CMAKE_SOURCE_DIR}/tests/house/memcheck.sh ${CMAKE_SOURCE_DIR} ${CMAKE_BINARY_DIR})
  set_tests_properties(memcheck PROPERTIES LABELS slow TIMEOUT 1800 SKIP_RETURN_CODE 77)
  add_test(NAME sanitized_all COMMAND ${CMAKE_SOURCE_DIR}/tests/house/sanitized.sh ${CMAKE_SOURCE_DIR} ${CMAKE_BINARY_DIR} --all)
  set_tests_properties(sanitized_all PROPERTIES LABELS by_hand TIMEOUT 7200)
  add_test(NAME sanitized COMMAND ${if_changed} sanitized ${CMAKE_SOURCE_DIR}/tests/house/sanitized.sh ${CMAKE_SOURCE_DIR}
    ${CMAKE_BINARY_DIR})
  set_tests_properties(sanitized PROPERTIES LABELS slow TIMEOUT 3600 SKIP_RETURN_CODE 77 COST 3000)  # it builds: first of all
endif()
