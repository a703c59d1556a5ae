// The vector types that kernel bodies are written in: 16 lanes of f32 or i32 on every instruction set, so that a sum
// over "16 virtual lanes and one fixed tree" (docs/design.md section 5, law 1) is the same sum everywhere. A file that
// includes this first defines IBID_ISA as its instruction set's namespace and is compiled with that set's flags:
//   #define IBID_ISA avx2
//   #include "kernels/cpu/simd.h"
// Everything is always inlined. No std:: templates: see cpu/table.h.
//
// What every set computes, to the bit: fma rounds once; min(a, b) is a < b ? a : b and max(a, b) is a > b ? a : b (so b
// where one is NaN); to_int rounds to nearest even, for |x| < 2^31; store_i8 takes lanes of [-128, 127]; f16 and bf16
// stores round to nearest even and keep subnormals; a NaN stays a NaN.
#pragma once

#include <cstddef>
#include <cstdint>

#ifndef IBID_ISA
#error "define IBID_ISA (baseline, avx2, avx512, neon, ...) before kernels/cpu/simd.h"
#endif
#define IBID_INLINE static inline __attribute__((always_inline))

namespace ibid::cpu::IBID_ISA {
// One number of each of four vectors, in the compiler's own vector extension.
typedef float f32x4 __attribute__((vector_size(16)));
typedef int32_t i32x4 __attribute__((vector_size(16)));
}  // namespace ibid::cpu::IBID_ISA

#if defined(__AVX512F__)
#include "kernels/cpu/simd_avx512.h"
#elif defined(__AVX2__)
#include "kernels/cpu/simd_avx2.h"
#elif defined(IBID_NEON)  // by the build: the baseline of ARM has the same predefined macros
#include "kernels/cpu/simd_neon.h"
#else
#include "kernels/cpu/simd_baseline.h"
#endif

namespace ibid::cpu::IBID_ISA {

inline constexpr int kLanes = 16;

// The tree: lanes i and i + 8, then i + 4, i + 2, i + 1.
// hsum and hmax are in the set's own file, which has the shuffles.

// fold(x, op)[j]: op, an add or a max, over all lanes of x[j]. Of four vectors at once, for half the shuffles. In
// the set's own file, or here for sets whose vectors are quarters.
#if !defined(__AVX2__)
template <typename Op>
IBID_INLINE i32x4 fold(const i32x16 (&x)[4], Op op) {
  const auto quarters = [&](int q) { return i32x16{{x[0].v[q], x[1].v[q], x[2].v[q], x[3].v[q]}}; };
  const i32x16 of = op(op(quarters(0), quarters(1)), op(quarters(2), quarters(3)));
  i32x4 column[4];
  for (int i = 0; i < 4; ++i) column[i] = i32x4{of.v[0][i], of.v[1][i], of.v[2][i], of.v[3][i]};
  const i32x16 two = op(i32x16{{column[0], column[1]}}, i32x16{{column[2], column[3]}});
  return (i32x4)op(i32x16{{two.v[0]}}, i32x16{{two.v[1]}}).v[0];
}
#endif
IBID_INLINE i32x4 max_of_lanes(const i32x16 (&x)[4]) {
  return fold(x, [](i32x16 a, i32x16 b) { return max(a, b); });
}
IBID_INLINE i32x4 sum_of_lanes(const i32x16 (&x)[4]) {
  return fold(x, [](i32x16 a, i32x16 b) { return add(a, b); });
}

// n lanes from memory, n in [0, 16]; the others are `rest`. Never reads past p + n.
IBID_INLINE f32x16 load_n(const float* p, int n, float rest = 0.0f) {
  alignas(64) float lane[16];
  for (int i = 0; i < 16; ++i) lane[i] = i < n ? p[i] : rest;
  return load(lane);
}
IBID_INLINE void store_n(float* p, f32x16 x, int n) {
  alignas(64) float lane[16];
  store(lane, x);
  for (int i = 0; i < n; ++i) p[i] = lane[i];
}

// bf16: the upper half of an f32.
IBID_INLINE f32x16 abs(f32x16 x) { return from_bits(and_(bits(x), broadcast_i(0x7fffffff))); }
IBID_INLINE f32x16 neg(f32x16 x) { return from_bits(xor_(bits(x), broadcast_i(static_cast<int32_t>(0x80000000)))); }

// One f32 rounded to bf16, to nearest even.
IBID_INLINE uint16_t bf16_from_f32(float x) {
  uint32_t u;
  __builtin_memcpy(&u, &x, 4);
  if ((u & 0x7fffffff) > 0x7f800000) return static_cast<uint16_t>((u >> 16) | 0x40);
  return static_cast<uint16_t>((u + 0x7fff + ((u >> 16) & 1)) >> 16);
}

}  // namespace ibid::cpu::IBID_ISA
