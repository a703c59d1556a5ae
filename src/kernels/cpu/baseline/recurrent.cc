#define IBID_ISA baseline
#include "kernels/cpu/recurrent.inl"
