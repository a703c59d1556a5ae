#define IBID_ISA neon
#include "kernels/cpu/recurrent.inl"
