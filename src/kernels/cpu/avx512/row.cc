#define IBID_ISA avx512
#include "kernels/cpu/row.inl"
