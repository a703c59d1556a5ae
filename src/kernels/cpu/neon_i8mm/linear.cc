#define IBID_ISA neon_i8mm
#include "kernels/cpu/linear.inl"
