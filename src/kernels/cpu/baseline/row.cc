#define IBID_ISA baseline
#include "kernels/cpu/row.inl"
