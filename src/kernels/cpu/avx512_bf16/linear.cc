#define IBID_ISA avx512_bf16
#include "kernels/cpu/linear.inl"
