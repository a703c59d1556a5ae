# Kernel bodies are compiled once per instruction set; only these files get the flags, and everything in them lives in
# the set's own namespace.
file(GLOB avx2_sources CONFIGURE_DEPENDS src/kernels/cpu/avx2/*.cc)
file(GLOB avx512_sources CONFIGURE_DEPENDS src/kernels/cpu/avx512/*.cc)
set_source_files_properties(${avx2_sources} PROPERTIES COMPILE_OPTIONS "-mavx2;-mfma;-mf16c;-O3")
set_source_files_properties(${avx512_sources} PROPERTIES COMPILE_OPTIONS
  "-mavx512f;-mavx512bw;-mavx512dq;-mavx512vl;-mavx512vnni;-mavx512bf16;-mfma;-mf16c;-O3")
