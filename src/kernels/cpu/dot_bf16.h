// fma(x0, w0, fma(x1, w1, acc)) per lane, where lane = one output's pair of bf16 weights and (x0, x1) is the same for
// every lane; round to nearest even, subnormal operands and results are zeros of their sign. Included after simd.h.
//
// Bf16Mode: a scope in which dot_bf16 is called; where the set needs it, it turns the processor's flushing of
// subnormals on. Nothing else may compute inside the scope, and what computes inside is a function of its own that is
// not inlined: a compiler knows nothing of such modes and moves arithmetic across their borders.
#pragma once

#include "kernels/cpu/simd.h"

namespace ibid::cpu::IBID_ISA {

#if defined(__AVX512BF16__)

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

#elif defined(__AVX512F__) || defined(__AVX2__)

struct Bf16Mode {
  unsigned before = __builtin_ia32_stmxcsr();
  Bf16Mode() { __builtin_ia32_ldmxcsr(before | 0x8040); }  // flush results to zero, read subnormals as zero
  ~Bf16Mode() { __builtin_ia32_ldmxcsr(before); }
};
typedef i32x16 Bf16Pairs;
#if defined(__AVX512F__)
IBID_INLINE Bf16Pairs load_pairs(const uint16_t* p) { return {_mm512_loadu_si512(p)}; }
#else
IBID_INLINE Bf16Pairs load_pairs(const uint16_t* p) { return {load_i8x32(p), load_i8x32(p + 16)}; }
#endif
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

#elif defined(IBID_NEON)

// ARM's own flushing decides before rounding, the law after: it is not used.
struct Bf16Mode {};
struct Bf16Pairs {
  f32x16 first, second;  // subnormals are zeros already
};
IBID_INLINE f32x16 zero_where(mask16 m, f32x16 x) {  // of its sign
  return select(m, from_bits(and_(bits(x), broadcast_i(INT32_MIN))), x);
}
IBID_INLINE Bf16Pairs split(i32x16 pairs) {
  const f32x16 first = from_bits(shift_left<16>(pairs)), second = from_bits(and_(pairs, broadcast_i(-65536)));
  const f32x16 smallest = broadcast(0x1p-126f);
  return {zero_where(less(abs(first), smallest), first), zero_where(less(abs(second), smallest), second)};
}
IBID_INLINE Bf16Pairs load_pairs(const uint16_t* p) {
  i32x16 r;
  __builtin_memcpy(&r, p, sizeof r);
  return split(r);
}
IBID_INLINE Bf16Pairs broadcast_pair(const uint16_t* p) {
  int32_t word;
  __builtin_memcpy(&word, p, 4);
  return split(broadcast_i(word));
}
// Whether a lane of r may have to be flushed: 0 < |r| <= 2^-126.
IBID_INLINE bool has_tiny(f32x16 r) {
  uint32x4_t least = vdupq_n_u32(UINT32_MAX);
  for (int q = 0; q < 4; ++q) {
    const uint32x4_t u = vreinterpretq_u32_f32(r.v[q]);
    least = vminq_u32(least, vsubq_u32(vaddq_u32(u, u), vdupq_n_u32(1)));  // the sign falls out, 0 becomes the largest
  }
  return vminvq_u32(least) < 0x01000000;
}
// r = fma(a, b, c), flushed. Rounding to the subnormal grid carries the last of what is tiny up to 2^-126; the same sum
// 2^64 times as large does not. Where r is tiny, the smaller factor and c are far below 2^64: nothing overflows.
__attribute__((noinline)) static f32x16 flush_tiny(f32x16 r, f32x16 a, f32x16 b, f32x16 c) {
  const mask16 a_is_less = less(abs(a), abs(b));
  const f32x16 by = broadcast(0x1p64f), smaller = select(a_is_less, a, b), larger = select(a_is_less, b, a);
  return zero_where(less(abs(fma(mul(smaller, by), larger, mul(c, by))), broadcast(0x1p-62f)), r);
}
IBID_INLINE f32x16 fma_flushed(f32x16 a, f32x16 b, f32x16 c) {
  const f32x16 r = fma(a, b, c);
  return __builtin_expect(has_tiny(r), 0) ? flush_tiny(r, a, b, c) : r;
}
// acc is a sum of these: never subnormal.
IBID_INLINE f32x16 dot_bf16(f32x16 acc, Bf16Pairs w, Bf16Pairs x) {
  return fma_flushed(w.first, x.first, fma_flushed(w.second, x.second, acc));
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
