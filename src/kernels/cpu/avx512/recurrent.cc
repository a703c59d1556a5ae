#define IBID_ISA avx512
#include "kernels/cpu/recurrent.inl"
