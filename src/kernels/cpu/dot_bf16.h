// fma(x0, w0, fma(x1, w1, acc)) per lane, where lane = one output's pair of bf16 weights and (x0, x1) is the same for
// every lane; round to nearest even, subnormal operands and results are zeros of their sign. Included after simd.h.
//
// Bf16Mode: a scope in which dot_bf16 is called; where the set needs it, it turns the processor's flushing of
// subnormals on. Nothing else may compute inside the scope, and what computes inside is a function of its own that is
// not inlined: a compiler knows nothing of such modes and moves arithmetic across their borders.
#pragma once

#include "kernels/cpu/simd.h"

namespace ibid::cpu::IBID_ISA {

#if defined(__AVX512F__)

struct Bf16Mode {};
typedef __m512i Bf16Pairs;
IBID_INLINE Bf16Pairs load_pairs(const uint16_t* p) { return _mm512_loadu_si512(p); }
IBID_INLINE Bf16Pairs broadcast_pair(const uint16_t* p) {
  int32_t word;
  __builtin_memcpy(&word, p, 4);
  return _mm512_set1_epi32(word);
}
IBID_INLINE f32x16 dot_bf16(f32x16 acc, Bf16Pairs w, Bf16Pairs x) {
  return {_mm512_dpbf16_ps(acc.v, (__m512bh)w, (__m512bh)x)};
}

#elif defined(__AVX2__)

struct Bf16Mode {
  unsigned before = __builtin_ia32_stmxcsr();
  Bf16Mode() { __builtin_ia32_ldmxcsr(before | 0x8040); }  // flush results to zero, read subnormals as zero
  ~Bf16Mode() { __builtin_ia32_ldmxcsr(before); }
};
typedef i32x16 Bf16Pairs;
IBID_INLINE Bf16Pairs load_pairs(const uint16_t* p) { return {load_i8x32(p), load_i8x32(p + 16)}; }
IBID_INLINE Bf16Pairs broadcast_pair(const uint16_t* p) {
  int32_t word;
  __builtin_memcpy(&word, p, 4);
  return broadcast_i(word);
}
IBID_INLINE f32x16 dot_bf16(f32x16 acc, Bf16Pairs w, Bf16Pairs x) {
  const i32x16 upper = broadcast_i(static_cast<int32_t>(0xffff0000));
  acc = fma(from_bits(and_(w, upper)), from_bits(and_(x, upper)), acc);
  return fma(from_bits(shift_left<16>(w)), from_bits(shift_left<16>(x)), acc);
}

#else

struct Bf16Mode {};
typedef i32x16 Bf16Pairs;
IBID_INLINE Bf16Pairs load_pairs(const uint16_t* p) {
  i32x16 r;
  __builtin_memcpy(&r, p, sizeof r);
  return r;
}
IBID_INLINE Bf16Pairs broadcast_pair(const uint16_t* p) {
  int32_t word;
  __builtin_memcpy(&word, p, 4);
  return broadcast_i(word);
}
IBID_INLINE f32x16 flushed(f32x16 x) {
  const i32x16 sign = and_(bits(x), broadcast_i(static_cast<int32_t>(0x80000000)));
  return select(less(abs(x), broadcast(0x1p-126f)), from_bits(sign), x);
}
// The processors decide about tiny results after rounding to 24 bits with an unbounded exponent: what lies below
// 2^-126 - 2^-151 is flushed, although rounding to the subnormal grid would carry the last of it up to 2^-126. With
// round-to-odd doubles the comparison is exact.
IBID_INLINE f64x2_ flush_tiny(f64x2_ s) {
  const i64x2_ tiny = (i64x2_)(s < 0x1p-126 - 0x1p-151) & (i64x2_)(s > -(0x1p-126 - 0x1p-151));
  const i64x2_ sign = {INT64_MIN, INT64_MIN};
  return (f64x2_)((i64x2_)s & (~tiny | sign));
}
IBID_INLINE f32x16 fma_flushed(f32x16 a, f32x16 b, f32x16 c) {
  f32x16 r;
  for (int q = 0; q < 4; ++q) {
    r.v[q] = narrow_(flush_tiny(fma_to_odd_(widen_(a.v[q], 0) * widen_(b.v[q], 0), widen_(c.v[q], 0))),
                     flush_tiny(fma_to_odd_(widen_(a.v[q], 2) * widen_(b.v[q], 2), widen_(c.v[q], 2))));
  }
  return r;
}
IBID_INLINE f32x16 dot_bf16(f32x16 acc, Bf16Pairs w, Bf16Pairs x) {
  const i32x16 upper = broadcast_i(static_cast<int32_t>(0xffff0000));
  acc = fma_flushed(flushed(from_bits(and_(w, upper))), flushed(from_bits(and_(x, upper))), flushed(acc));
  return fma_flushed(flushed(from_bits(shift_left<16>(w))), flushed(from_bits(shift_left<16>(x))), acc);
}

#endif

}  // namespace ibid::cpu::IBID_ISA
