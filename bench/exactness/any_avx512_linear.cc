#define IBID_ISA any_avx512
#include "bench/exactness/any_linear.inl"

namespace ibid::bench {
const AnyLinears kLinearsAvx512 = {cpu::any_avx512::linears, cpu::any_avx512::kLinear};
}  // namespace ibid::bench
