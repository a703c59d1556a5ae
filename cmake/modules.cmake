# ibid_module(NAME DEPENDS a b): the library ibid_NAME from src/NAME/**.cc without tests and fuzz targets.
# A folder may add its own src/NAME/module.cmake (special compile flags, extra libraries).
add_library(ibid_flags INTERFACE)
target_include_directories(ibid_flags INTERFACE ${CMAKE_SOURCE_DIR}/src)
target_compile_options(ibid_flags INTERFACE
  -Wall -Wextra -Wshadow -Wno-missing-field-initializers -Wno-restrict -Wno-stringop-overflow -Wno-array-bounds -Werror
  -ffp-contract=off -fno-math-errno -fno-trapping-math)
target_compile_definitions(ibid_flags INTERFACE IBID_VERSION="${PROJECT_VERSION}")
if(IBID_SANITIZE)
  target_compile_options(ibid_flags INTERFACE -fsanitize=${IBID_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  target_link_options(ibid_flags INTERFACE -fsanitize=${IBID_SANITIZE})
  if(IBID_SANITIZE STREQUAL "thread")  # does not know fences; Asio's locks say as much
    target_compile_definitions(ibid_flags INTERFACE BOOST_ASIO_DISABLE_FENCED_BLOCK)
  endif()
endif()

# The standard headers, compiled once for all modules: reading them is a third of a build's time. The kernels do without,
# since a precompiled header holds for one set of flags.
set(precompiled_headers <algorithm> <array> <atomic> <charconv> <chrono> <cmath> <cstdint> <cstdio> <cstring> <filesystem>
  <fstream> <functional> <limits> <map> <memory> <mutex> <optional> <span> <sstream> <string> <string_view> <thread>
  <unordered_map> <utility> <variant> <vector>)
set(CMAKE_PCH_INSTANTIATE_TEMPLATES ON)
# ibid_precompile(TARGET NAME HEADER...): TARGET takes them from ibid_NAME_headers, which is made at the first call.
function(ibid_precompile target name)
  if(NOT IBID_PCH)
    return()
  endif()
  if(NOT TARGET ibid_${name}_headers)
    file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/generated/${name}_headers.cc CONTENT "")
    add_library(ibid_${name}_headers OBJECT ${CMAKE_BINARY_DIR}/generated/${name}_headers.cc)
    target_link_libraries(ibid_${name}_headers PRIVATE ibid_flags)
    if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
      target_compile_options(ibid_${name}_headers PRIVATE -fpch-preprocess)  # for ccache
    endif()
    target_precompile_headers(ibid_${name}_headers PRIVATE ${ARGN})
  endif()
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    target_compile_options(${target} PRIVATE -fpch-preprocess)
  endif()
  target_precompile_headers(${target} REUSE_FROM ibid_${name}_headers)
endfunction()

function(ibid_module name)
  cmake_parse_arguments(M "" "" "DEPENDS" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS src/${name}/*.cc)
  list(FILTER sources EXCLUDE REGEX "(_test|_fuzz|/main)\\.cc$")
  list(FILTER sources EXCLUDE REGEX "/kernels/cuda/")
  if(sources)
    add_library(ibid_${name} STATIC ${sources})
    set(scope PUBLIC)
  else()
    add_library(ibid_${name} INTERFACE)
    set(scope INTERFACE)
  endif()
  target_link_libraries(ibid_${name} ${scope} ibid_flags)
  if(sources AND NOT name STREQUAL "kernels")
    ibid_precompile(ibid_${name} module ${precompiled_headers})
  endif()
  foreach(dep ${M_DEPENDS})
    target_link_libraries(ibid_${name} ${scope} ibid_${dep})
  endforeach()
  if(EXISTS ${CMAKE_SOURCE_DIR}/src/${name}/module.cmake)
    include(${CMAKE_SOURCE_DIR}/src/${name}/module.cmake)
  endif()
endfunction()
