#define IBID_ISA any_avx2
#include "bench/exactness/any_linear.inl"

namespace ibid::bench {
const AnyLinears kLinearsAvx2 = {cpu::any_avx2::linears, cpu::any_avx2::kLinear};
}  // namespace ibid::bench
