// Activations into the forms that products read: int8 in groups of 32, and bf16.
#pragma once

#include "kernels/cpu/linear_table.h"
#include "kernels/cpu/simd.h"

namespace ibid::cpu::IBID_ISA {
namespace {

inline constexpr float kSmallestAmax = 0x1p-96f;  // 127 / amax stays finite
inline constexpr float kLargest = 0x1.fffffep127f;

// Codes of 16 inputs; returns their sum.
IBID_INLINE int32_t put_codes(int8_t* to, f32x16 x, float inverse) {
  alignas(64) int32_t code[16];
  store_i(code, to_int(mul(x, broadcast(inverse))));
  int32_t sum = 0;
  for (int i = 0; i < 16; ++i) {
    to[i] = static_cast<int8_t>(code[i]);
    sum += code[i];
  }
  return sum;
}

void quantise_group(const QuantisedRows& to, const float* x, int64_t group) {
  const f32x16 a = load(x), b = load(x + 16);
  const float amax = hmax(max(abs(a), abs(b)));
  // x - x is 0, or NaN where x is not finite.
  const float poison = hsum(add(sub(a, a), sub(b, b)));
  const bool usable = amax >= kSmallestAmax && amax <= kLargest && poison == 0.0f;
  const float scale = usable ? amax / 127.0f : poison;
  int8_t* codes = to.codes + group * 32;
  int32_t sum_a = 0, sum_b = 0;
  if (usable) {
    const float inverse = 127.0f / amax;
    sum_a = put_codes(codes, a, inverse);
    sum_b = put_codes(codes + 16, b, inverse);
  } else {
    __builtin_memset(codes, 0, 32);
  }
  to.scales[group] = scale;
  to.neg_sums[group] = -(sum_a + sum_b);
  to.scaled_sums[group] = scale * static_cast<float>(sum_a + sum_b);
  if (to.neg_sums16 != nullptr) {
    to.neg_sums16[2 * group] = -sum_a;
    to.neg_sums16[2 * group + 1] = -sum_b;
    to.scaled_sums16[2 * group] = scale * static_cast<float>(sum_a);
    to.scaled_sums16[2 * group + 1] = scale * static_cast<float>(sum_b);
  }
}

void quantise_rows(const QuantisedRows& to, const float* x, int64_t x_stride, int64_t row, int64_t row_end) {
  const int64_t n_groups = to.n_inputs / 32;
  for (; row < row_end; ++row) {
    for (int64_t g = 0; g < n_groups; ++g) quantise_group(to, x + row * x_stride + g * 32, row * n_groups + g);
  }
}

void round_rows(uint16_t* to, int64_t n_inputs, const float* x, int64_t x_stride, int64_t row, int64_t row_end) {
  const int64_t to_len = n_inputs + n_inputs % 2;
  for (; row < row_end; ++row) {
    const float* from = x + row * x_stride;
    uint16_t* put = to + row * to_len;
    int64_t k = 0;
    for (; k + 16 <= n_inputs; k += 16) store_bf16(put + k, load(from + k));
    for (; k < n_inputs; ++k) put[k] = bf16_from_f32(from[k]);
    if (to_len > n_inputs) put[n_inputs] = 0;
  }
}

}  // namespace
}  // namespace ibid::cpu::IBID_ISA
