#define IBID_ISA avx2
#include "kernels/cpu/recurrent.inl"
