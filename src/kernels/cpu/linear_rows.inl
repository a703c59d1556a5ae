// Activations into the forms that products read: int8 in groups of 32, and bf16.
#pragma once

#include "kernels/cpu/linear_table.h"
#include "kernels/cpu/linear_tile.h"

namespace ibid::cpu::IBID_ISA {
namespace {

inline constexpr float kSmallestAmax = 0x1p-96f;  // 127 / amax stays finite
inline constexpr float kLargest = 0x1.fffffep127f;

// |x|, and infinity where x is not finite, so that a maximum of many tells whether all are.
IBID_INLINE f32x16 magnitude(f32x16 x) {
  const f32x16 a = abs(x);
  return select(less(bits(a), broadcast_i(0x7f800000)), a, broadcast(__builtin_inff()));
}
// Sums of codes are exact in floats too.
template <bool kHalves>
IBID_INLINE void quantise_group(XGroup& to, const float* x) {
  const f32x16 a = load(x), b = load(x + 16);
  const float amax = hmax(max(magnitude(a), magnitude(b)));
  const bool usable = amax >= kSmallestAmax && amax <= kLargest;
  const f32x16 inverse = broadcast(usable ? 127.0f / amax : 0.0f);
  const i32x16 codes_a = to_int(mul(usable ? a : zero(), inverse)), codes_b = to_int(mul(usable ? b : zero(), inverse));
  store_i8(to.codes, codes_a);
  store_i8(to.codes + 16, codes_b);
  const float sum = hsum(from_int(add(codes_a, codes_b)));
  to.scale = usable ? amax / 127.0f : amax - amax;  // not usable: 0, or NaN where x is not finite
  to.scaled_sum = to.scale * sum;
  to.neg_sum = -static_cast<int32_t>(sum);
  if constexpr (kHalves) {
    const float sum_a = hsum(from_int(codes_a)), sum_b = sum - sum_a;
    to.scaled_sum16[0] = to.scale * sum_a;
    to.scaled_sum16[1] = to.scale * sum_b;
    to.neg_sum16[0] = -static_cast<int32_t>(sum_a);
    to.neg_sum16[1] = -static_cast<int32_t>(sum_b);
  }
}

// Group 0 of a row, and in `step` how many groups on its next one is.
IBID_INLINE XGroup* x_groups(const QuantisedRows& x, int64_t row, int64_t& step) {
  const int64_t in_chunk = row % kRowsInt8, chunk = row - in_chunk;
  step = x.n_rows - chunk < kRowsInt8 ? x.n_rows - chunk : kRowsInt8;
  return x.groups + chunk * x.n_groups + in_chunk;
}

void quantise_rows(const QuantisedRows& to, const float* x, int64_t x_stride, int64_t row, int64_t row_end) {
  for (; row < row_end; ++row) {
    const float* from = x + row * x_stride;
    int64_t step;
    XGroup* groups = x_groups(to, row, step);
    if (to.has_halves) {
      for (int64_t g = 0; g < to.n_groups; ++g) quantise_group<true>(groups[g * step], from + g * 32);
    } else {
      for (int64_t g = 0; g < to.n_groups; ++g) quantise_group<false>(groups[g * step], from + g * 32);
    }
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
