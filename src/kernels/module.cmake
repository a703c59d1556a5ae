# Kernel bodies are compiled once per instruction set; only these files get the flags, and everything in them lives in
# the set's own namespace.
file(GLOB avx2_sources CONFIGURE_DEPENDS src/kernels/cpu/avx2/*.cc)
file(GLOB avx512_sources CONFIGURE_DEPENDS src/kernels/cpu/avx512/*.cc)
file(GLOB baseline_sources CONFIGURE_DEPENDS src/kernels/cpu/baseline/*.cc)
# At -O3 the straight-line vectoriser of g++ 12 miscompiles chains of the emulated fma (last bits differ); -O2 and all
# else of -O3 are right.
set_source_files_properties(${baseline_sources} PROPERTIES COMPILE_OPTIONS "-fno-tree-slp-vectorize")
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  set(IBID_AVX2_FLAGS -mavx2 -mfma -mf16c -O3)
  # g++ 12 takes the undefined upper halves inside its own intrinsics for mistakes of ours.
  set(IBID_AVX512_FLAGS -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx512vnni -mavx512bf16 -mfma -mf16c -O3
    -Wno-uninitialized -Wno-maybe-uninitialized)
  set_source_files_properties(${avx2_sources} PROPERTIES COMPILE_OPTIONS "${IBID_AVX2_FLAGS}")
  set_source_files_properties(${avx512_sources} PROPERTIES COMPILE_OPTIONS "${IBID_AVX512_FLAGS}")
else()
  set_source_files_properties(${avx2_sources} ${avx512_sources} PROPERTIES HEADER_FILE_ONLY TRUE)
endif()
