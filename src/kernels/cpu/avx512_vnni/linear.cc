#define IBID_ISA avx512_vnni
#include "kernels/cpu/linear.inl"
