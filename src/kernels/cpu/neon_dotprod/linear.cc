#define IBID_ISA neon_dotprod
#include "kernels/cpu/linear.inl"
