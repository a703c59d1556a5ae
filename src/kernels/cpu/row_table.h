// Row kernels: what ops do to one row. Plain pointers, so that files compiled for an instruction set pull in no inline
// code. Any n >= 0, any alignment; nothing is read or written outside the rows. Elements of a row go to lane
// (index mod 16); a sum over a row is 16 ascending lane sums, then the tree of simd.h (docs/design.md section 5, law
// 1).
#pragma once

#include <cstdint>

namespace ibid::cpu {

struct RowTable {
  // Of n_rows rows, whose strides are in floats: r = 1 / sqrt(sum(fma(x, x, .)) / n + eps); out = (x * r) * weight. out
  // may be x.
  void (*rms_norm)(float* out, int64_t out_stride, const float* x, int64_t x_stride, const float* weight,
                   int64_t n_rows, int64_t n, float eps);
  // x = x + y, then rms_norm.
  void (*add_rms_norm)(float* out, int64_t out_stride, float* x, int64_t x_stride, const float* y, int64_t y_stride,
                       const float* weight, int64_t n_rows, int64_t n, float eps);
  // m = sum(x) / n, r = 1 / sqrt(sum(fma(x - m, x - m, .)) / n + eps); out = fma((x - m) * r, weight, bias). out may
  // be x.
  void (*layer_norm)(float* out, const float* x, const float* weight, const float* bias, int64_t n, float eps);
  void (*add)(float* x, const float* y, int64_t n);
  void (*scale)(float* x, float factor, int64_t n);
  void (*silu_mul)(float* out, const float* gate, const float* up, int64_t n);
  void (*gelu_mul)(float* out, const float* gate, const float* up, int64_t n);
  // a' = fma(a, cos, -(b * sin)), b' = fma(b, cos, a * sin) for the pairs of each of n_heads heads; cosines, then
  // sines.
  void (*rope)(float* x, int64_t n_heads, int64_t head_len, int64_t n_pairs, bool interleaved, const float* cos_sin);
  // x = cap * tanh(x / cap)
  void (*soft_cap)(float* x, float cap, int64_t n);
  // m = max(x), s = sum(exp(x - m)); out = (x - m) - log(s), log in F64 rounded once. out may be x.
  void (*log_softmax)(float* out, const float* x, int64_t n);

  // What draws ask of a row (kernels/row_math.h): its highest, -inf if n is 0, with NaNs passed over; how many are
  // above -inf; whether all are below +inf, which a NaN is not.
  void (*look)(const float* x, int64_t n, float* most, int64_t* n_possible, bool* is_sound);
  // out = exp(x - most), none of them above 1.
  void (*exp_below)(float* out, const float* x, float most, int64_t n);
  // out[b] = max(x[32 b], ... x[32 b + 31]), or to the row's end.
  void (*block_max)(float* out, const float* x, int64_t n);
  // The first multiple of 64 from `from` on, itself one, with a lane i of 64 that has x[i] >= least; else the first
  // that has no 64 lanes after it.
  int64_t (*block_from)(const float* x, int64_t from, int64_t n, float least);
  // The same with words[i] / 256, cut to a whole number, <= bound * weights[i].
  int64_t (*block_near)(const uint32_t* words, const float* weights, int64_t from, int64_t n, float bound);

  // The lanes' functions themselves (kernels/math.h, tests).
  void (*exp)(float* out, const float* x, int64_t n);
  void (*tanh)(float* out, const float* x, int64_t n);
  void (*silu)(float* out, const float* x, int64_t n);
  void (*gelu)(float* out, const float* x, int64_t n);
  void (*gelu_tanh)(float* out, const float* x, int64_t n);

  // To F16 and BF16, nearest even, subnormals kept.
  void (*to_f16)(uint16_t* out, const float* x, int64_t n);
  void (*to_bf16)(uint16_t* out, const float* x, int64_t n);

  // The sum of kernels/expert_groups.h over rows[j] of y by weights[j], j ascending; group g ends before group_end[g],
  // of 8.
  void (*add_experts)(float* out, const float* y, int64_t y_stride, const int32_t* rows, const float* weights,
                      const int32_t* group_end, int64_t n);

  // g = min(gate, limit), u = max(min(up, limit), -limit); out = ((u + 1) * g) / (1 + exp(-(1.702 g))). out may be gate
  // or up.
  void (*clamped_silu_mul)(float* out, const float* gate, const float* up, int64_t n, float limit);
};

}  // namespace ibid::cpu
