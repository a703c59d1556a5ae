#define IBID_ISA baseline
#include "kernels/cpu/linear.inl"
