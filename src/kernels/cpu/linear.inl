// The body of every instruction set's linear.cc.
#include "kernels/cpu/linear_table.h"
#include "kernels/cpu/simd.h"

namespace ibid::cpu::IBID_ISA {
namespace {

float dot(const float* a, const float* b, int64_t n) {
  f32x16 sum = zero();
  for (int64_t i = 0; i < n; i += 16) {
    const int rest = static_cast<int>(n - i < 16 ? n - i : 16);
    sum = fma(load_n(a + i, rest), load_n(b + i, rest), sum);
  }
  return hsum(sum);
}

}  // namespace

extern const LinearTable kLinear;
const LinearTable kLinear = {dot};

}  // namespace ibid::cpu::IBID_ISA
