#define IBID_ISA baseline
#include "kernels/cpu/attention.inl"
