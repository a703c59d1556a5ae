#define IBID_ISA avx2_vnni
#include "kernels/cpu/linear.inl"
