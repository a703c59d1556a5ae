// Activations into the forms that products read: int8 in groups of 32, and bf16.
#pragma once

#include "kernels/cpu/linear_table.h"
#include "kernels/cpu/linear_tile.h"

namespace ibid::cpu::IBID_ISA {
namespace {

inline constexpr float kSmallestAmax = 0x1p-96f;  // 127 / amax stays finite
inline constexpr float kLargest = 0x1.fffffep127f;

// Four groups at once, from[j] to to[j], so that maxima and sums take half the shuffles.
template <bool kHalves>
IBID_INLINE void quantise_groups(XGroup* const (&to)[4], const float* const (&from)[4]) {
  constexpr int32_t kInfinity = 0x7f800000;
  f32x16 x[4][2];
  i32x16 magnitude[4];  // the bits of |x|: larger numbers have larger ones, NaNs those above infinity's
  for (int j = 0; j < 4; ++j) {
    for (int h = 0; h < 2; ++h) x[j][h] = load(from[j] + 16 * h);
    magnitude[j] = max(bits(abs(x[j][0])), bits(abs(x[j][1])));
  }
  i32x4 most = max_of_lanes(magnitude);
  most = most < kInfinity ? most : i32x4{kInfinity, kInfinity, kInfinity, kInfinity};
  const f32x4 amax = (f32x4)most;
  const i32x4 usable = (amax >= kSmallestAmax) & (amax <= kLargest);
  const f32x4 inverse = usable ? 127.0f / amax : f32x4{};
  const f32x4 scale = usable ? amax / 127.0f : amax - amax;  // not usable: 0, or NaN where x is not finite
  i32x16 codes[4][2], codes_of_both[4];
  for (int j = 0; j < 4; ++j) {
    for (int h = 0; h < 2; ++h) {
      codes[j][h] = to_int(mul(most[j] == kInfinity ? zero() : x[j][h], broadcast(inverse[j])));
      store_i8(to[j]->codes + 16 * h, codes[j][h]);
    }
    codes_of_both[j] = add(codes[j][0], codes[j][1]);
  }
  const i32x4 sum = sum_of_lanes(codes_of_both);
  const f32x4 scaled_sum = scale * __builtin_convertvector(sum, f32x4);
  for (int j = 0; j < 4; ++j) {
    to[j]->scale = scale[j];
    to[j]->scaled_sum = scaled_sum[j];
    to[j]->neg_sum = -sum[j];
  }
  if constexpr (kHalves) {
    const i32x16 first[4] = {codes[0][0], codes[1][0], codes[2][0], codes[3][0]};
    const i32x4 sums[2] = {sum_of_lanes(first), sum - sum_of_lanes(first)};
    for (int h = 0; h < 2; ++h) {
      const f32x4 scaled = scale * __builtin_convertvector(sums[h], f32x4);
      for (int j = 0; j < 4; ++j) {
        to[j]->scaled_sum16[h] = scaled[j];
        to[j]->neg_sum16[h] = -sums[h][j];
      }
    }
  }
}

// Group 0 of a row, and in `step` how many groups on its next one is.
IBID_INLINE XGroup* x_groups(const QuantisedRows& x, int64_t row, int64_t& step) {
  const int64_t in_chunk = row % kRowsInt8, chunk = row - in_chunk;
  step = x.n_rows - chunk < kRowsInt8 ? x.n_rows - chunk : kRowsInt8;
  return x.groups + chunk * x.n_groups + in_chunk;
}

template <bool kHalves>
IBID_INLINE void quantise_row(XGroup* groups, int64_t step, int64_t n_groups, const float* x) {
  for (int64_t g = 0; g < n_groups; g += 4) {
    XGroup* to[4];
    const float* from[4];
    for (int64_t j = 0; j < 4; ++j) {  // past the end the last one again
      const int64_t group = g + j < n_groups ? g + j : n_groups - 1;
      to[j] = groups + group * step;
      from[j] = x + group * 32;
    }
    quantise_groups<kHalves>(to, from);
  }
}

void quantise_rows(const QuantisedRows& to, const float* x, int64_t x_stride, int64_t row, int64_t row_end) {
  for (; row < row_end; ++row) {
    int64_t step;
    XGroup* groups = x_groups(to, row, step);
    if (to.has_halves) {
      quantise_row<true>(groups, step, to.n_groups, x + row * x_stride);
    } else {
      quantise_row<false>(groups, step, to.n_groups, x + row * x_stride);
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
