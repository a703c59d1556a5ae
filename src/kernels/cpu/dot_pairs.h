// Dot products of 8 bytes for two rows of x at once, where a set has them (i8mm: 2 x 8 by 8 x 2 bytes). Sums are exact,
// so rows by twos and one by one give the same numbers. Included after dot.h.
#pragma once

#include "kernels/cpu/dot.h"
#include "kernels/cpu/linear_table.h"

namespace ibid::cpu::IBID_ISA {

#if defined(IBID_NEON) && defined(__ARM_FEATURE_MATMUL_INT8)

inline constexpr bool kHasPairs = true;
// Of M rows; the last of an odd number is beside itself. Of quarter q of 16 outputs v[p][2 q] is outputs 0 and 1 and
// v[p][2 q + 1] 2 and 3, each for rows 2 p and 2 p + 1.
template <int M>
struct PairSums {
  int32x4_t v[(M + 1) / 2][8];
};
template <int M>
IBID_INLINE void clear(PairSums<M>& sums) {
  for (auto& pair : sums.v) {
    for (int32x4_t& v : pair) v = vdupq_n_s32(0);
  }
}
// Adds the products of inputs [from, from + 8) of the groups x[0], ..., x[M - 1] with the codes of two steps, which
// count as 0 to 255.
template <int M>
IBID_INLINE void add_steps(PairSums<M>& sums, FullCodes8 w0, FullCodes8 w1, const XGroup* x, int64_t from) {
  int8x16_t rows[(M + 1) / 2];
  for (int p = 0; p < (M + 1) / 2; ++p) {
    const int second = 2 * p + 1 < M ? 2 * p + 1 : 2 * p;
    rows[p] = vcombine_s8(vld1_s8(x[2 * p].codes + from), vld1_s8(x[second].codes + from));
  }
  for (int q = 0; q < 4; ++q) {
    const uint32x4_t a = vreinterpretq_u32_u8(w0.v[q]), b = vreinterpretq_u32_u8(w1.v[q]);
    const uint8x16_t lower = vreinterpretq_u8_u32(vzip1q_u32(a, b)), upper = vreinterpretq_u8_u32(vzip2q_u32(a, b));
    for (int p = 0; p < (M + 1) / 2; ++p) {
      sums.v[p][2 * q] = vusmmlaq_s32(sums.v[p][2 * q], lower, rows[p]);
      sums.v[p][2 * q + 1] = vusmmlaq_s32(sums.v[p][2 * q + 1], upper, rows[p]);
    }
  }
}
template <int M>
IBID_INLINE i32x16 sums_of_row(const PairSums<M>& sums, int row) {
  const auto& v = sums.v[row / 2];
  i32x16 r;
  for (int q = 0; q < 4; ++q) {
    r.v[q] = row % 2 == 0 ? vuzp1q_s32(v[2 * q], v[2 * q + 1]) : vuzp2q_s32(v[2 * q], v[2 * q + 1]);
  }
  return r;
}

#else

inline constexpr bool kHasPairs = false;
template <int M>
struct PairSums {};

#endif

}  // namespace ibid::cpu::IBID_ISA
