# The scripted server as a program, and the tests in Python that drive it and the real one. A script ends with 77 where a
# tool that it needs cannot be had.
add_executable(fake_server ${CMAKE_SOURCE_DIR}/tests/conformance/fake_server.cc)
target_link_libraries(fake_server PRIVATE ibid_server)
target_include_directories(fake_server PRIVATE ${CMAKE_SOURCE_DIR}/tests)
find_package(Python3 COMPONENTS Interpreter)
function(conformance_script name script)
  if(Python3_FOUND)
    add_test(NAME ${name} COMMAND ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/tests/conformance/${script} ${CMAKE_BINARY_DIR})
    set_tests_properties(${name} PROPERTIES LABELS slow TIMEOUT 900 SKIP_RETURN_CODE 77)
  endif()
endfunction()
conformance_script(openai_client client_tests.py)
conformance_script(metrics metrics_test.py)
