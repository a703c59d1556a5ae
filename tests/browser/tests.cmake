# The page in a headless browser; it skips (77) where there is no Chromium or no model.
find_package(Python3 COMPONENTS Interpreter)
if(Python3_FOUND)
  add_test(NAME page COMMAND ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/tests/browser/page_tests.py ${CMAKE_BINARY_DIR})
  set_tests_properties(page PROPERTIES LABELS slow TIMEOUT 1800 SKIP_RETURN_CODE 77)
endif()
