# What puts a load on a server and measures it; serving_bench and tests/load use it.
file(GLOB sources CONFIGURE_DEPENDS bench/load/*.cc)
add_library(ibid_load STATIC EXCLUDE_FROM_ALL ${sources})
target_link_libraries(ibid_load PUBLIC ibid_server)
target_include_directories(ibid_load PUBLIC ${CMAKE_SOURCE_DIR})
# One program per bench/*_bench.cc. `ninja bench` builds them all; none is part of the default build.
add_custom_target(bench)
set(bench_module_engine_cost_bench ibid_engine)  # others link all there is
file(GLOB sources CONFIGURE_DEPENDS bench/*_bench.cc)
if(NOT CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  list(FILTER sources EXCLUDE REGEX exactness_bench)  # its variants are for x86
endif()
foreach(source ${sources})
  get_filename_component(name ${source} NAME_WE)
  add_executable(${name} EXCLUDE_FROM_ALL ${source})
  if(NOT bench_module_${name})
    set(bench_module_${name} ibid_cli)
  endif()
  target_link_libraries(${name} PRIVATE ${bench_module_${name}})
  target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR})
  add_dependencies(bench ${name})
endforeach()
target_link_libraries(serving_bench PRIVATE ibid_load)
# Kernels that keep no order of sums, which nothing else may link: -ffast-math and a set of instructions, AVX-512 with VNNI (and BF16, which
# nothing but the family of that name uses) or AVX2.
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  file(GLOB avx512_sources CONFIGURE_DEPENDS bench/exactness/any_avx512_*.cc)
  file(GLOB avx2_sources CONFIGURE_DEPENDS bench/exactness/any_avx2_*.cc)
  set(any_order -ffast-math -ffp-contract=fast -Wno-maybe-uninitialized
    "$<$<STREQUAL:$<TARGET_PROPERTY:NAME>,benches_compile>:-O0>")
  set_source_files_properties(${avx512_sources} PROPERTIES COMPILE_OPTIONS "${IBID_AVX512_FLAGS};-mavx512vnni;-mavx512bf16;${any_order}")
  set_source_files_properties(${avx2_sources} PROPERTIES COMPILE_OPTIONS "${IBID_AVX2_FLAGS};${any_order}")
  target_sources(exactness_bench PRIVATE ${avx512_sources} ${avx2_sources})
endif()
# With the tests all of it is compiled, as fast as can be and into no program: an interface that changed broke a bench unseen.
if(IBID_TESTS AND NOT IBID_SANITIZE)
  add_library(benches_compile OBJECT ${sources} ${avx512_sources} ${avx2_sources})
  target_link_libraries(benches_compile PRIVATE ibid_cli ibid_load)
  target_include_directories(benches_compile PRIVATE ${CMAKE_SOURCE_DIR})
  target_compile_options(benches_compile PRIVATE -O0)
endif()
