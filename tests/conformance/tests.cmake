# The scripted server as a program, and the tests in Python that drive it and the real one.
add_executable(fake_server ${CMAKE_SOURCE_DIR}/tests/conformance/fake_server.cc)
target_link_libraries(fake_server PRIVATE ibid_server)
target_include_directories(fake_server PRIVATE ${CMAKE_SOURCE_DIR}/tests)
find_package(Python3 COMPONENTS Interpreter)
if(Python3_FOUND)
  add_test(NAME openai_client COMMAND ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/tests/conformance/client_tests.py ${CMAKE_BINARY_DIR})
  set_tests_properties(openai_client PROPERTIES LABELS slow TIMEOUT 900 SKIP_RETURN_CODE 77)
endif()
