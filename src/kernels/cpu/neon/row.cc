#define IBID_ISA neon
#include "kernels/cpu/row.inl"
