// 16 lanes as two registers of 8. Included by simd.h.
#pragma once

#include <immintrin.h>

namespace ibid::cpu::IBID_ISA {

struct f32x16 {
  __m256 lo, hi;
};
struct i32x16 {
  __m256i lo, hi;
};
struct mask16 {
  __m256i lo, hi;  // all ones where true
};

IBID_INLINE f32x16 zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
IBID_INLINE f32x16 broadcast(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
IBID_INLINE f32x16 load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
IBID_INLINE void store(float* p, f32x16 x) {
  _mm256_storeu_ps(p, x.lo);
  _mm256_storeu_ps(p + 8, x.hi);
}
IBID_INLINE f32x16 add(f32x16 a, f32x16 b) { return {_mm256_add_ps(a.lo, b.lo), _mm256_add_ps(a.hi, b.hi)}; }
IBID_INLINE f32x16 sub(f32x16 a, f32x16 b) { return {_mm256_sub_ps(a.lo, b.lo), _mm256_sub_ps(a.hi, b.hi)}; }
IBID_INLINE f32x16 mul(f32x16 a, f32x16 b) { return {_mm256_mul_ps(a.lo, b.lo), _mm256_mul_ps(a.hi, b.hi)}; }
IBID_INLINE f32x16 div(f32x16 a, f32x16 b) { return {_mm256_div_ps(a.lo, b.lo), _mm256_div_ps(a.hi, b.hi)}; }
IBID_INLINE f32x16 sqrt(f32x16 a) { return {_mm256_sqrt_ps(a.lo), _mm256_sqrt_ps(a.hi)}; }
IBID_INLINE f32x16 fma(f32x16 a, f32x16 b, f32x16 c) {
  return {_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi)};
}
IBID_INLINE f32x16 min(f32x16 a, f32x16 b) { return {_mm256_min_ps(a.lo, b.lo), _mm256_min_ps(a.hi, b.hi)}; }
IBID_INLINE f32x16 max(f32x16 a, f32x16 b) { return {_mm256_max_ps(a.lo, b.lo), _mm256_max_ps(a.hi, b.hi)}; }

IBID_INLINE __m256i load_i8x32(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }
IBID_INLINE i32x16 broadcast_i(int32_t x) { return {_mm256_set1_epi32(x), _mm256_set1_epi32(x)}; }
IBID_INLINE i32x16 load_i(const int32_t* p) { return {load_i8x32(p), load_i8x32(p + 8)}; }
IBID_INLINE void store_i(int32_t* p, i32x16 x) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), x.lo);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p + 8), x.hi);
}
// Two loads that widen, and no shift between them: a fifth of attention over codes.
IBID_INLINE i32x16 load_i8(const void* p) {
  const auto* bytes = static_cast<const char*>(p);
  return {_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(bytes))),
          _mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(bytes + 8)))};
}
// Packing works inside 128-bit halves: the words of four lanes come out as 0 2 1 3.
IBID_INLINE void store_i8(int8_t* p, i32x16 x) {
  const __m256i pairs = _mm256_permute4x64_epi64(_mm256_packs_epi32(x.lo, x.hi), 0xd8);
  const __m256i bytes = _mm256_packs_epi16(pairs, pairs);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p),
                   _mm_unpacklo_epi64(_mm256_castsi256_si128(bytes), _mm256_extracti128_si256(bytes, 1)));
}
IBID_INLINE i32x16 add(i32x16 a, i32x16 b) { return {_mm256_add_epi32(a.lo, b.lo), _mm256_add_epi32(a.hi, b.hi)}; }
IBID_INLINE i32x16 sub(i32x16 a, i32x16 b) { return {_mm256_sub_epi32(a.lo, b.lo), _mm256_sub_epi32(a.hi, b.hi)}; }
IBID_INLINE i32x16 mul(i32x16 a, i32x16 b) { return {_mm256_mullo_epi32(a.lo, b.lo), _mm256_mullo_epi32(a.hi, b.hi)}; }
IBID_INLINE i32x16 and_(i32x16 a, i32x16 b) { return {_mm256_and_si256(a.lo, b.lo), _mm256_and_si256(a.hi, b.hi)}; }
IBID_INLINE i32x16 or_(i32x16 a, i32x16 b) { return {_mm256_or_si256(a.lo, b.lo), _mm256_or_si256(a.hi, b.hi)}; }
IBID_INLINE i32x16 xor_(i32x16 a, i32x16 b) { return {_mm256_xor_si256(a.lo, b.lo), _mm256_xor_si256(a.hi, b.hi)}; }
IBID_INLINE i32x16 max(i32x16 a, i32x16 b) { return {_mm256_max_epi32(a.lo, b.lo), _mm256_max_epi32(a.hi, b.hi)}; }
template <int N>
IBID_INLINE i32x16 shift_left(i32x16 a) {
  return {_mm256_slli_epi32(a.lo, N), _mm256_slli_epi32(a.hi, N)};
}
template <int N>  // logical
IBID_INLINE i32x16 shift_right(i32x16 a) {
  return {_mm256_srli_epi32(a.lo, N), _mm256_srli_epi32(a.hi, N)};
}
IBID_INLINE i32x16 bits(f32x16 x) { return {_mm256_castps_si256(x.lo), _mm256_castps_si256(x.hi)}; }
IBID_INLINE f32x16 from_bits(i32x16 x) { return {_mm256_castsi256_ps(x.lo), _mm256_castsi256_ps(x.hi)}; }
IBID_INLINE i32x16 to_int(f32x16 x) { return {_mm256_cvtps_epi32(x.lo), _mm256_cvtps_epi32(x.hi)}; }
IBID_INLINE f32x16 from_int(i32x16 x) { return {_mm256_cvtepi32_ps(x.lo), _mm256_cvtepi32_ps(x.hi)}; }

IBID_INLINE mask16 less(f32x16 a, f32x16 b) {
  return {_mm256_castps_si256(_mm256_cmp_ps(a.lo, b.lo, _CMP_LT_OQ)),
          _mm256_castps_si256(_mm256_cmp_ps(a.hi, b.hi, _CMP_LT_OQ))};
}
IBID_INLINE mask16 less(i32x16 a, i32x16 b) { return {_mm256_cmpgt_epi32(b.lo, a.lo), _mm256_cmpgt_epi32(b.hi, a.hi)}; }
IBID_INLINE mask16 equal(i32x16 a, i32x16 b) {
  return {_mm256_cmpeq_epi32(a.lo, b.lo), _mm256_cmpeq_epi32(a.hi, b.hi)};
}
IBID_INLINE mask16 is_nan(f32x16 a) {
  return {_mm256_castps_si256(_mm256_cmp_ps(a.lo, a.lo, _CMP_UNORD_Q)),
          _mm256_castps_si256(_mm256_cmp_ps(a.hi, a.hi, _CMP_UNORD_Q))};
}
IBID_INLINE bool all(mask16 m) { return _mm256_movemask_ps(_mm256_castsi256_ps(_mm256_and_si256(m.lo, m.hi))) == 0xff; }
IBID_INLINE f32x16 select(mask16 m, f32x16 yes, f32x16 no) {
  return {_mm256_blendv_ps(no.lo, yes.lo, _mm256_castsi256_ps(m.lo)),
          _mm256_blendv_ps(no.hi, yes.hi, _mm256_castsi256_ps(m.hi))};
}
IBID_INLINE i32x16 select(mask16 m, i32x16 yes, i32x16 no) {
  return {_mm256_blendv_epi8(no.lo, yes.lo, m.lo), _mm256_blendv_epi8(no.hi, yes.hi, m.hi)};
}

IBID_INLINE float hsum(f32x16 x) {
  const __m256 a = _mm256_add_ps(x.lo, x.hi);
  const __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
  const __m128 c = _mm_add_ps(b, _mm_movehl_ps(b, b));
  return _mm_cvtss_f32(_mm_add_ss(c, _mm_movehdup_ps(c)));
}
IBID_INLINE float hmax(f32x16 x) {
  const __m256 a = _mm256_max_ps(x.lo, x.hi);
  const __m128 b = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
  const __m128 c = _mm_max_ps(b, _mm_movehl_ps(b, b));
  return _mm_cvtss_f32(_mm_max_ss(c, _mm_movehdup_ps(c)));
}

template <typename Op>
IBID_INLINE i32x4 fold(const i32x16 (&x)[4], Op op) {
  const i32x16 a = op(i32x16{x[0].lo, x[1].lo}, i32x16{x[0].hi, x[1].hi});
  const i32x16 b = op(i32x16{x[2].lo, x[3].lo}, i32x16{x[2].hi, x[3].hi});
  const i32x16 pairs = op(i32x16{_mm256_unpacklo_epi32(a.lo, a.hi), _mm256_unpacklo_epi32(b.lo, b.hi)},
                          i32x16{_mm256_unpackhi_epi32(a.lo, a.hi), _mm256_unpackhi_epi32(b.lo, b.hi)});
  const i32x16 all = op(i32x16{_mm256_unpacklo_epi64(pairs.lo, pairs.hi), pairs.lo},
                        i32x16{_mm256_unpackhi_epi64(pairs.lo, pairs.hi), pairs.lo});
  const i32x16 r = op(all, i32x16{_mm256_permute2x128_si256(all.lo, all.lo, 1), all.lo});
  return (i32x4)_mm256_castsi256_si128(r.lo);
}

IBID_INLINE f32x16 load_f16(const uint16_t* p) {
  return {_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))),
          _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 8)))};
}
// Sixteen bytes of E4M3 but NaN, over 256: shifted they are halves, subnormals too.
IBID_INLINE f32x16 load_e4m3(const void* p) {
  const __m256i x = _mm256_cvtepi8_epi16(_mm_loadu_si128(static_cast<const __m128i*>(p)));
  const __m256i size = _mm256_slli_epi16(_mm256_and_si256(x, _mm256_set1_epi16(0x7f)), 7);
  const __m256i half = _mm256_or_si256(size, _mm256_and_si256(x, _mm256_set1_epi16(-0x8000)));
  return {_mm256_cvtph_ps(_mm256_castsi256_si128(half)), _mm256_cvtph_ps(_mm256_extracti128_si256(half, 1))};
}
IBID_INLINE void store_f16(uint16_t* p, f32x16 x) {
  constexpr int kNearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_cvtps_ph(x.lo, kNearest));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p + 8), _mm256_cvtps_ph(x.hi, kNearest));
}
IBID_INLINE f32x16 load_bf16(const uint16_t* p) {
  const __m256i lo = _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  const __m256i hi = _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 8)));
  return {_mm256_castsi256_ps(_mm256_slli_epi32(lo, 16)), _mm256_castsi256_ps(_mm256_slli_epi32(hi, 16))};
}
IBID_INLINE void store_bf16(uint16_t* p, f32x16 x) {
  const i32x16 u = bits(x);
  const i32x16 top = shift_right<16>(u);
  const i32x16 rounded = shift_right<16>(add(u, add(and_(top, broadcast_i(1)), broadcast_i(0x7fff))));
  const i32x16 r = select(is_nan(x), or_(top, broadcast_i(0x40)), rounded);
  // Packing works inside 128-bit halves; the permutation puts the quarters back in order.
  const __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(r.lo, r.hi), 0xd8);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), packed);
}

}  // namespace ibid::cpu::IBID_ISA
