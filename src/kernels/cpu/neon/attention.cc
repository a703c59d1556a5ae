#define IBID_ISA neon
#include "kernels/cpu/attention.inl"
