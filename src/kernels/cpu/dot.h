// Dot products of 4 bytes (and 2 bf16) per lane, for matrix products. Included after simd.h; IBID_ISA as there.
//
// Codes8: 64 unsigned codes, 4 per lane. Two ranges, so that every set can choose its instructions:
//   small   codes below 128                dot adds sum(code * x) to acc
//   full    codes 0 to 255 that mean code - 128: start_full(-sum(x)) and then dot_full end at sum((code - 128) * x)
// x: four signed bytes in [-127, 127], the same for every lane. Sums are exact.
// shift_words: to the right, or left where n < 0, within words or bytes: what crosses bytes is for mask_bytes to drop.
#pragma once

#include "kernels/cpu/simd.h"

namespace ibid::cpu::IBID_ISA {

IBID_INLINE int32_t load_word(const void* p) {
  int32_t word;
  __builtin_memcpy(&word, p, 4);
  return word;
}

#if defined(__AVX512F__)

typedef __m512i Codes8;
typedef __m512i X4;
IBID_INLINE Codes8 load_codes(const void* p) { return _mm512_loadu_si512(p); }
IBID_INLINE void store_codes(void* p, Codes8 c) { _mm512_storeu_si512(p, c); }
IBID_INLINE Codes8 shift_words(Codes8 c, int n) {
  return n == 0  ? c
         : n > 0 ? _mm512_srli_epi16(c, static_cast<unsigned>(n))
                 : _mm512_slli_epi16(c, static_cast<unsigned>(-n));
}
IBID_INLINE Codes8 mask_bytes(Codes8 c, int mask) {
  return _mm512_and_si512(c, _mm512_set1_epi8(static_cast<char>(mask)));
}
IBID_INLINE Codes8 either(Codes8 a, Codes8 b) { return _mm512_or_si512(a, b); }
struct CodeTable {
  __m512i v;
};
IBID_INLINE CodeTable load_table(const uint8_t* t) {
  return {_mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(t)))};
}
IBID_INLINE Codes8 look_up(CodeTable t, Codes8 c) { return _mm512_shuffle_epi8(t.v, c); }

IBID_INLINE X4 load_x4(const int8_t* p) { return _mm512_set1_epi32(load_word(p)); }
#if defined(__AVX512VNNI__)
typedef __m512i FullCodes8;
IBID_INLINE i32x16 dot_small(i32x16 acc, Codes8 c, X4 x) { return {_mm512_dpbusd_epi32(acc.v, c, x)}; }
IBID_INLINE FullCodes8 full_codes(Codes8 c) { return c; }
IBID_INLINE i32x16 start_full(int32_t neg_sum) { return {_mm512_set1_epi32(neg_sum * 128)}; }
IBID_INLINE i32x16 dot_full(i32x16 acc, FullCodes8 c, X4 x) { return {_mm512_dpbusd_epi32(acc.v, c, x)}; }
#else  // as AVX2 below, for the reason given there
struct FullCodes8 {
  __m512i magnitude;
  __mmask64 is_negative;
};
struct Dots16 {
  __m512i v = _mm512_setzero_si512();
};
IBID_INLINE i32x16 widen(Dots16 d) { return {_mm512_madd_epi16(d.v, _mm512_set1_epi16(1))}; }
IBID_INLINE Dots16 dot_small(Dots16 acc, Codes8 c, X4 x) {
  return {_mm512_add_epi16(acc.v, _mm512_maddubs_epi16(c, x))};
}
IBID_INLINE i32x16 dot_small(i32x16 acc, Codes8 c, X4 x) { return add(acc, widen(dot_small(Dots16{}, c, x))); }
IBID_INLINE FullCodes8 full_codes(Codes8 c) {
  const __m512i s = _mm512_xor_si512(c, _mm512_set1_epi8(-128));
  return {_mm512_abs_epi8(s), _mm512_movepi8_mask(s)};
}
IBID_INLINE i32x16 start_full(int32_t) { return broadcast_i(0); }
IBID_INLINE i32x16 dot_full(i32x16 acc, FullCodes8 c, X4 x) {
  return dot_small(acc, c.magnitude, _mm512_mask_sub_epi8(x, c.is_negative, _mm512_setzero_si512(), x));
}
#endif

#elif defined(__AVX2__)

struct Codes8 {
  __m256i lo, hi;
};
typedef __m256i X4;
IBID_INLINE Codes8 load_codes(const void* p) {
  return {load_i8x32(p), load_i8x32(static_cast<const uint8_t*>(p) + 32)};
}
IBID_INLINE void store_codes(void* p, Codes8 c) {
  _mm256_storeu_si256(static_cast<__m256i*>(p), c.lo);
  _mm256_storeu_si256(static_cast<__m256i*>(p) + 1, c.hi);
}
IBID_INLINE Codes8 shift_words(Codes8 c, int n) {
  if (n == 0) return c;
  return n > 0 ? Codes8{_mm256_srli_epi16(c.lo, n), _mm256_srli_epi16(c.hi, n)}
               : Codes8{_mm256_slli_epi16(c.lo, -n), _mm256_slli_epi16(c.hi, -n)};
}
IBID_INLINE Codes8 mask_bytes(Codes8 c, int mask) {
  const __m256i m = _mm256_set1_epi8(static_cast<char>(mask));
  return {_mm256_and_si256(c.lo, m), _mm256_and_si256(c.hi, m)};
}
IBID_INLINE Codes8 either(Codes8 a, Codes8 b) { return {_mm256_or_si256(a.lo, b.lo), _mm256_or_si256(a.hi, b.hi)}; }
struct CodeTable {
  __m256i v;
};
IBID_INLINE CodeTable load_table(const uint8_t* t) {
  return {_mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(t)))};
}
IBID_INLINE Codes8 look_up(CodeTable t, Codes8 c) {
  return {_mm256_shuffle_epi8(t.v, c.lo), _mm256_shuffle_epi8(t.v, c.hi)};
}

IBID_INLINE X4 load_x4(const int8_t* p) { return _mm256_set1_epi32(load_word(p)); }
#if defined(__AVXVNNI__)  // unsigned codes by signed x
typedef Codes8 FullCodes8;
IBID_INLINE i32x16 dot_small(i32x16 acc, Codes8 c, X4 x) {
  return {_mm256_dpbusd_avx_epi32(acc.lo, c.lo, x), _mm256_dpbusd_avx_epi32(acc.hi, c.hi, x)};
}
IBID_INLINE FullCodes8 full_codes(Codes8 c) { return c; }
IBID_INLINE i32x16 start_full(int32_t neg_sum) { return broadcast_i(neg_sum * 128); }
IBID_INLINE i32x16 dot_full(i32x16 acc, FullCodes8 c, X4 x) { return dot_small(acc, c, x); }
#else
// vpmaddubsw adds two products in 16 bits. Signed codes of up to 8 bits fit as (|code|, sign(code) * x): at most
// 2 * 128 * 127 = 32,512. Unsigned ones up to 255 would not.
struct FullCodes8 {
  Codes8 code, magnitude;
};
IBID_INLINE __m256i dot_half(__m256i acc, __m256i u, __m256i s) {
  return _mm256_add_epi32(acc, _mm256_madd_epi16(_mm256_maddubs_epi16(u, s), _mm256_set1_epi16(1)));
}
IBID_INLINE i32x16 dot_small(i32x16 acc, Codes8 c, X4 x) {
  return {dot_half(acc.lo, c.lo, x), dot_half(acc.hi, c.hi, x)};
}
// Sums in 16 bits, of codes so small that these hold them.
struct Dots16 {
  __m256i lo = _mm256_setzero_si256(), hi = _mm256_setzero_si256();
};
IBID_INLINE Dots16 dot_small(Dots16 acc, Codes8 c, X4 x) {
  return {_mm256_add_epi16(acc.lo, _mm256_maddubs_epi16(c.lo, x)),
          _mm256_add_epi16(acc.hi, _mm256_maddubs_epi16(c.hi, x))};
}
IBID_INLINE i32x16 widen(Dots16 d) {
  const __m256i ones = _mm256_set1_epi16(1);
  return {_mm256_madd_epi16(d.lo, ones), _mm256_madd_epi16(d.hi, ones)};
}
IBID_INLINE FullCodes8 full_codes(Codes8 c) {
  const __m256i flip = _mm256_set1_epi8(-128);
  const Codes8 s = {_mm256_xor_si256(c.lo, flip), _mm256_xor_si256(c.hi, flip)};
  return {s, {_mm256_abs_epi8(s.lo), _mm256_abs_epi8(s.hi)}};
}
IBID_INLINE i32x16 start_full(int32_t) { return broadcast_i(0); }
IBID_INLINE i32x16 dot_full(i32x16 acc, FullCodes8 c, X4 x) {
  return {dot_half(acc.lo, c.magnitude.lo, _mm256_sign_epi8(x, c.code.lo)),
          dot_half(acc.hi, c.magnitude.hi, _mm256_sign_epi8(x, c.code.hi))};
}
#endif

#elif defined(IBID_NEON)

struct Codes8 {
  uint8x16_t v[4];
};
typedef Codes8 FullCodes8;
typedef int8x16_t X4;  // the four values, four times
IBID_INLINE Codes8 load_codes(const void* p) {
  const auto* bytes = static_cast<const uint8_t*>(p);
  return {{vld1q_u8(bytes), vld1q_u8(bytes + 16), vld1q_u8(bytes + 32), vld1q_u8(bytes + 48)}};
}
IBID_INLINE void store_codes(void* p, Codes8 c) {
  for (int q = 0; q < 4; ++q) vst1q_u8(static_cast<uint8_t*>(p) + 16 * q, c.v[q]);
}
IBID_INLINE Codes8 shift_words(Codes8 c, int n) {
  for (int q = 0; q < 4; ++q) c.v[q] = n < 0 ? c.v[q] << -n : c.v[q] >> n;
  return c;
}
IBID_INLINE Codes8 mask_bytes(Codes8 c, int mask) {
  for (int q = 0; q < 4; ++q) c.v[q] = vandq_u8(c.v[q], vdupq_n_u8(static_cast<uint8_t>(mask)));
  return c;
}
IBID_INLINE Codes8 either(Codes8 a, Codes8 b) {
  for (int q = 0; q < 4; ++q) a.v[q] = vorrq_u8(a.v[q], b.v[q]);
  return a;
}
struct CodeTable {
  uint8x16_t v;
};
IBID_INLINE CodeTable load_table(const uint8_t* t) { return {vld1q_u8(t)}; }
IBID_INLINE Codes8 look_up(CodeTable t, Codes8 c) {
  for (int q = 0; q < 4; ++q) c.v[q] = vqtbl1q_u8(t.v, c.v[q]);
  return c;
}

IBID_INLINE X4 load_x4(const int8_t* p) { return vreinterpretq_s8_s32(vdupq_n_s32(load_word(p))); }
#if defined(__ARM_FEATURE_MATMUL_INT8)  // unsigned codes by signed x
IBID_INLINE i32x16 dot_small(i32x16 acc, Codes8 c, X4 x) {
  for (int q = 0; q < 4; ++q) acc.v[q] = vusdotq_s32(acc.v[q], c.v[q], x);
  return acc;
}
IBID_INLINE FullCodes8 full_codes(Codes8 c) { return c; }
IBID_INLINE i32x16 start_full(int32_t neg_sum) { return broadcast_i(neg_sum * 128); }
#else                                   // both signed
IBID_INLINE int32x4_t dot_quarter(int32x4_t acc, int8x16_t c, int8x16_t x) {
#if defined(__ARM_FEATURE_DOTPROD)
  return vdotq_s32(acc, c, x);
#else
  // Two products fit in 16 bits: at most 2 * 128 * 127 = 32,512.
  const int16x8_t lo = vmull_s8(vget_low_s8(c), vget_low_s8(x)), hi = vmull_high_s8(c, x);
  return vpadalq_s16(acc, vpaddq_s16(lo, hi));
#endif
}
IBID_INLINE i32x16 dot_small(i32x16 acc, Codes8 c, X4 x) {
  for (int q = 0; q < 4; ++q) acc.v[q] = dot_quarter(acc.v[q], vreinterpretq_s8_u8(c.v[q]), x);
  return acc;
}
IBID_INLINE FullCodes8 full_codes(Codes8 c) {
  for (int q = 0; q < 4; ++q) c.v[q] = veorq_u8(c.v[q], vdupq_n_u8(128));
  return c;
}
IBID_INLINE i32x16 start_full(int32_t) { return broadcast_i(0); }
#endif
IBID_INLINE i32x16 dot_full(i32x16 acc, FullCodes8 c, X4 x) { return dot_small(acc, c, x); }

#else

typedef int16_t i16x8_ __attribute__((vector_size(16)));
typedef uint8_t u8x16_ __attribute__((vector_size(16)));
struct Codes8 {
  u8x16_ v[4];
};
typedef Codes8 FullCodes8;
struct X4 {
  i16x8_ v;  // the four values, twice
};
IBID_INLINE Codes8 load_codes(const void* p) {
  Codes8 c;
  __builtin_memcpy(&c, p, sizeof c);
  return c;
}
IBID_INLINE void store_codes(void* p, Codes8 c) { __builtin_memcpy(p, &c, sizeof c); }
IBID_INLINE Codes8 shift_words(Codes8 c, int n) {
  for (int q = 0; q < 4; ++q) c.v[q] = n < 0 ? c.v[q] << -n : c.v[q] >> n;
  return c;
}
IBID_INLINE Codes8 mask_bytes(Codes8 c, int mask) {
  for (int q = 0; q < 4; ++q) c.v[q] &= static_cast<uint8_t>(mask);
  return c;
}
IBID_INLINE Codes8 either(Codes8 a, Codes8 b) {
  for (int q = 0; q < 4; ++q) a.v[q] |= b.v[q];
  return a;
}
struct CodeTable {
  uint8_t v[16];
};
IBID_INLINE CodeTable load_table(const uint8_t* t) {
  CodeTable table;
  __builtin_memcpy(&table, t, sizeof table);
  return table;
}
IBID_INLINE Codes8 look_up(CodeTable t, Codes8 c) {
  for (int i = 0; i < 64; ++i) c.v[i / 16][i % 16] = t.v[c.v[i / 16][i % 16]];
  return c;
}

IBID_INLINE X4 load_x4(const int8_t* p) { return {i16x8_{p[0], p[1], p[2], p[3], p[0], p[1], p[2], p[3]}}; }
// The four lanes of one quarter: sums of 4 products each.
IBID_INLINE i32x4 dot_quarter(u8x16_ c, i16x8_ x, int16_t offset) {
  const u8x16_ none = {};
  const i16x8_ lo = (i16x8_)__builtin_shuffle(c, none, u8x16_{0, 16, 1, 16, 2, 16, 3, 16, 4, 16, 5, 16, 6, 16, 7, 16});
  const i16x8_ hi =
      (i16x8_)__builtin_shuffle(c, none, u8x16_{8, 16, 9, 16, 10, 16, 11, 16, 12, 16, 13, 16, 14, 16, 15, 16});
  const i16x8_ a = lo - offset, b = hi - offset;
#if defined(__SSE2__)
  const f32x4 pa = (f32x4)__builtin_ia32_pmaddwd128(a, x), pb = (f32x4)__builtin_ia32_pmaddwd128(b, x);
  return (i32x4)__builtin_shuffle(pa, pb, i32x4{0, 2, 4, 6}) + (i32x4)__builtin_shuffle(pa, pb, i32x4{1, 3, 5, 7});
#else
  i32x4 r = {};
  for (int i = 0; i < 2; ++i) {
    r[i] = a[4 * i] * x[0] + a[4 * i + 1] * x[1] + a[4 * i + 2] * x[2] + a[4 * i + 3] * x[3];
    r[i + 2] = b[4 * i] * x[0] + b[4 * i + 1] * x[1] + b[4 * i + 2] * x[2] + b[4 * i + 3] * x[3];
  }
  return r;
#endif
}
IBID_INLINE i32x16 dot_small(i32x16 acc, Codes8 c, X4 x) {
  for (int q = 0; q < 4; ++q) acc.v[q] += dot_quarter(c.v[q], x.v, 0);
  return acc;
}
IBID_INLINE FullCodes8 full_codes(Codes8 c) { return c; }
IBID_INLINE i32x16 start_full(int32_t) { return broadcast_i(0); }
IBID_INLINE i32x16 dot_full(i32x16 acc, FullCodes8 c, X4 x) {
  for (int q = 0; q < 4; ++q) acc.v[q] += dot_quarter(c.v[q], x.v, 128);
  return acc;
}

#endif

#if defined(__AVX2__) && !defined(__AVX512VNNI__) && !defined(__AVXVNNI__)
inline constexpr bool kHasDots16 = true;
#else
inline constexpr bool kHasDots16 = false;
typedef i32x16 Dots16;
#endif
template <bool kIn16>
struct SumOf {
  typedef i32x16 Type;
};
template <>
struct SumOf<true> {
  typedef Dots16 Type;
};

// A sum that is added to where it stands. Left to itself the compiler makes all products of a block first and spills
// them one by one: a third of a block's instructions with AVX2, with AVX-512 without VNNI and with NEON.
template <class Sum>
IBID_INLINE Sum kept_here(Sum sum) {
#if defined(__AVX512F__)
  asm volatile("" : "+v"(sum.v));
#elif defined(__AVX2__)
  asm volatile("" : "+x"(sum.lo), "+x"(sum.hi));
#elif defined(IBID_NEON)
  asm volatile("" : "+w"(sum.v[0]), "+w"(sum.v[1]), "+w"(sum.v[2]), "+w"(sum.v[3]));
#endif
  return sum;
}

// kBits bits of every byte, which begin at bit `from`, moved to bit kTo; the rest is 0. (Shifts are of words: what
// comes in from the neighbouring byte is masked away.)
template <int kBits, int kTo>
IBID_INLINE Codes8 take_bits(Codes8 c, int from) {
  return mask_bytes(shift_words(c, from - kTo), ((1 << kBits) - 1) << kTo);
}

}  // namespace ibid::cpu::IBID_ISA
