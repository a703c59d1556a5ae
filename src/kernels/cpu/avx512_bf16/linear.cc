#define IBID_ISA avx512_bf16
#define IBID_ALL_BUT_BF16 avx512_vnni
#include "kernels/cpu/linear.inl"
