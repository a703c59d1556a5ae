#define IBID_ISA neon
#include "kernels/cpu/noise.inl"
