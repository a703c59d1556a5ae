#define IBID_ISA baseline
#include "kernels/cpu/noise.inl"
