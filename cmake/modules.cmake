# ibid_module(NAME DEPENDS a b): the library ibid_NAME from src/NAME/**.cc without tests and fuzz targets. A folder within
# a folder (text/jinja) can be a module of its own: ibid_text_jinja, which its house does not hold.
# A folder may add its own src/NAME/module.cmake (special compile flags, extra libraries).
# The prefix map: the same bytes in every folder.
add_library(ibid_flags INTERFACE)
target_include_directories(ibid_flags INTERFACE ${CMAKE_SOURCE_DIR}/src)
target_compile_options(ibid_flags INTERFACE
  -Wall -Wextra -Wshadow -Wno-missing-field-initializers -Wno-restrict -Werror
  -ffp-contract=off -fno-math-errno -fno-trapping-math -ffile-prefix-map=${CMAKE_SOURCE_DIR}/=)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64|ARM64")
  target_compile_options(ibid_flags INTERFACE -fsigned-char)  # as on x86
endif()
target_compile_definitions(ibid_flags INTERFACE IBID_VERSION="${PROJECT_VERSION}")
if(IBID_SANITIZE)
  # What sanitizers add hides from g++ what is set: it takes the insides of std::regex for mistakes of ours.
  target_compile_options(ibid_flags INTERFACE -Wno-maybe-uninitialized)
  target_compile_options(ibid_flags INTERFACE -fsanitize=${IBID_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  # What a target is spared, after what turns it on: before it, as a target's own options stand, it would spare nothing.
  target_compile_options(ibid_flags INTERFACE
    $<$<BOOL:$<TARGET_PROPERTY:IBID_SPARED>>:-fno-sanitize=$<TARGET_PROPERTY:IBID_SPARED>>)
  target_link_options(ibid_flags INTERFACE -fsanitize=${IBID_SANITIZE})
  if(IBID_SANITIZE STREQUAL "thread")  # does not know fences; Asio's locks say as much
    target_compile_definitions(ibid_flags INTERFACE BOOST_ASIO_DISABLE_FENCED_BLOCK)
  endif()
endif()

# A target's files, six in one go, each of which reads the same headers otherwise.
function(ibid_unite target)
  if(IBID_UNITY)
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 6)
  endif()
endfunction()
# Files that use a name of their own for what another file calls so too, and cannot be compiled in one go with it.
function(ibid_apart)
  set_source_files_properties(${ARGN} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
endfunction()

# Sources that run once a command or once a connection and are costly to compile, for their libraries' templates.
set(IBID_COLD $<$<CONFIG:Release>:-O1>)
if(IBID_SANITIZE)
  set(IBID_COLD -O0)
endif()
# How modules are compiled that do no arithmetic of a model, where a build is not for their speed: for the bits of those
# that do, or for checks. Empty: as all.
set(IBID_EDGES_OPT "" CACHE STRING "optimisation of the modules around the engine")
set(IBID_EDGES base format host server cli capi)
if(IBID_SANITIZE)  # whose builds answer from tiny models alone
  list(APPEND IBID_EDGES model worker spec engine)
else()  # under sanitizers hostile tests of these take minutes each without optimisation
  list(APPEND IBID_EDGES text text_jinja sample_grammar)
endif()
if(IBID_EDGES_OPT)
  set(IBID_COLD ${IBID_EDGES_OPT})
endif()
# What works on objects and lays none over bytes: under sanitizers addresses are checked there by one of the two, which
# is two fifths less to compile and half to link.
set(IBID_HANDLES_OBJECTS host server cli capi engine spec)

set(IBID_INNER_MODULES text/jinja sample/grammar)

function(ibid_module folder)
  cmake_parse_arguments(M "" "" "DEPENDS" ${ARGN})
  string(REPLACE "/" "_" name ${folder})
  list(TRANSFORM M_DEPENDS REPLACE "/" "_")
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS src/${folder}/*.cc)
  foreach(inner ${IBID_INNER_MODULES})
    if(NOT folder STREQUAL inner)
      list(FILTER sources EXCLUDE REGEX "/src/${inner}/")
    endif()
  endforeach()
  list(FILTER sources EXCLUDE REGEX "(_test|_fuzz|/main)\\.cc$")
  if(sources)
    add_library(ibid_${name} STATIC ${sources})
    set(scope PUBLIC)
  else()
    add_library(ibid_${name} INTERFACE)
    set(scope INTERFACE)
  endif()
  target_link_libraries(ibid_${name} ${scope} ibid_flags)
  if(IBID_EDGES_OPT AND name IN_LIST IBID_EDGES)
    target_compile_options(ibid_${name} PRIVATE ${IBID_EDGES_OPT})
  endif()
  if(name IN_LIST IBID_HANDLES_OBJECTS)
    set_target_properties(ibid_${name} PROPERTIES IBID_SPARED null,alignment,object-size,vptr)
  endif()
  if(sources AND NOT name STREQUAL "kernels")  # whose files have flags of their own
    ibid_unite(ibid_${name})
  endif()
  # One build for the program and for libibid.so: of hidden symbols such code is what a program's is. (The kernels' own
  # flags are in src/kernels/module.cmake.)
  if(sources AND NOT name STREQUAL "kernels")
    set_target_properties(ibid_${name} PROPERTIES POSITION_INDEPENDENT_CODE ON CXX_VISIBILITY_PRESET hidden
      VISIBILITY_INLINES_HIDDEN ON)
  endif()
  foreach(dep ${M_DEPENDS})
    target_link_libraries(ibid_${name} ${scope} ibid_${dep})
  endforeach()
  if(EXISTS ${CMAKE_SOURCE_DIR}/src/${folder}/module.cmake)
    include(${CMAKE_SOURCE_DIR}/src/${folder}/module.cmake)
  endif()
endfunction()
