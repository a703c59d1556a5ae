# Kernel bodies are compiled once per instruction set; only these files get the flags, and everything in them lives in
# the set's own namespace.
file(GLOB avx2_sources CONFIGURE_DEPENDS src/kernels/cpu/avx2*/*.cc)
file(GLOB avx512_sources CONFIGURE_DEPENDS src/kernels/cpu/avx512*/*.cc)
file(GLOB neon_sources CONFIGURE_DEPENDS src/kernels/cpu/neon*/*.cc)
file(GLOB baseline_sources CONFIGURE_DEPENDS src/kernels/cpu/baseline/*.cc)
# What is around them goes into libibid.so as other modules do; the bodies call nothing outside, and go as they are.
file(GLOB_RECURSE around CONFIGURE_DEPENDS src/kernels/*.cc)
list(FILTER around EXCLUDE REGEX "/kernels/cpu/[a-z0-9_]+/|_test\\.cc$")
set_source_files_properties(${around} PROPERTIES COMPILE_OPTIONS "-fPIC;-fvisibility=hidden;-fvisibility-inlines-hidden")
# At -O3 the straight-line vectoriser of g++ 12 miscompiles chains of the emulated fma (last bits differ); -O2 and all
# else of -O3 are right.
set_source_files_properties(${baseline_sources} PROPERTIES COMPILE_OPTIONS "-fno-tree-slp-vectorize")
# With checks of every address in their unrolled loops the vector kernels take g++ many minutes a file: under sanitizers
# they have none, and IBID_VECTOR_KERNELS, a folder that holds a build without sanitizers, lends them as they are there.
# The baseline bodies are the same code, with all checks.
set(IBID_VECTOR_KERNELS "" CACHE PATH "a built tree whose vector kernels are linked instead of compiled")
set(IBID_KERNEL_OPT -O3)
if(IBID_SANITIZE)
  set(IBID_KERNEL_OPT -O1 -fno-sanitize=all)
  set_source_files_properties(${baseline_sources} PROPERTIES COMPILE_OPTIONS "-O0")  # half the time, and seldom run
endif()
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  set(IBID_AVX2_FLAGS -mavx2 -mfma -mf16c ${IBID_KERNEL_OPT})
  # g++ 12 takes the undefined upper halves inside its own intrinsics for mistakes of ours.
  set(IBID_AVX512_FLAGS -mavx512f -mavx512bw -mavx512dq -mavx512vl -mfma -mf16c ${IBID_KERNEL_OPT}
    -Wno-uninitialized -Wno-maybe-uninitialized)
  set_source_files_properties(${avx2_sources} PROPERTIES COMPILE_OPTIONS "${IBID_AVX2_FLAGS}")
  set_source_files_properties(src/kernels/cpu/avx2_vnni/linear.cc PROPERTIES
    COMPILE_OPTIONS "${IBID_AVX2_FLAGS};-mavxvnni")
  set_source_files_properties(${avx512_sources} PROPERTIES COMPILE_OPTIONS "${IBID_AVX512_FLAGS}")
  set_source_files_properties(src/kernels/cpu/avx512_vnni/linear.cc PROPERTIES
    COMPILE_OPTIONS "${IBID_AVX512_FLAGS};-mavx512vnni")
  set_source_files_properties(src/kernels/cpu/avx512_bf16/linear.cc PROPERTIES
    COMPILE_OPTIONS "${IBID_AVX512_FLAGS};-mavx512vnni;-mavx512bf16")
  set(IBID_AVX2_FLAGS ${IBID_AVX2_FLAGS} PARENT_SCOPE)  # for cmake/bench.cmake
  set(IBID_AVX512_FLAGS ${IBID_AVX512_FLAGS} PARENT_SCOPE)
  set(other_sources ${neon_sources})
  if(IBID_VECTOR_KERNELS)
    foreach(source ${avx2_sources} ${avx512_sources})
      list(APPEND other_sources ${source})
      file(RELATIVE_PATH object ${CMAKE_SOURCE_DIR} ${source})
      set(object ${IBID_VECTOR_KERNELS}/CMakeFiles/ibid_kernels.dir/${object}.o)
      target_sources(ibid_kernels PRIVATE ${object})
      set_source_files_properties(${object} PROPERTIES EXTERNAL_OBJECT TRUE)
    endforeach()
  endif()
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64|ARM64")
  set(IBID_NEON_FLAGS -DIBID_NEON ${IBID_KERNEL_OPT})
  set_source_files_properties(${neon_sources} PROPERTIES COMPILE_OPTIONS "${IBID_NEON_FLAGS}")
  set_source_files_properties(src/kernels/cpu/neon_dotprod/linear.cc PROPERTIES
    COMPILE_OPTIONS "${IBID_NEON_FLAGS};-march=armv8.2-a+dotprod")
  set_source_files_properties(src/kernels/cpu/neon_i8mm/linear.cc PROPERTIES
    COMPILE_OPTIONS "${IBID_NEON_FLAGS};-march=armv8.2-a+dotprod+i8mm")
  # Every ARM has NEON, so the baseline is there to compare with: as it is on x86 it would take longest of all to compile.
  set_source_files_properties(${baseline_sources} PROPERTIES COMPILE_OPTIONS "-fno-tree-slp-vectorize;-O1")
  set(other_sources ${avx2_sources} ${avx512_sources})
else()
  set(other_sources ${avx2_sources} ${avx512_sources} ${neon_sources})
endif()
set_source_files_properties(${other_sources} PROPERTIES HEADER_FILE_ONLY TRUE)
