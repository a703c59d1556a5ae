#define IBID_ISA neon
#include "kernels/cpu/linear.inl"
