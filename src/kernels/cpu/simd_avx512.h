// 16 lanes as one register. Included by simd.h.
#pragma once

#include <immintrin.h>

namespace ibid::cpu::IBID_ISA {

struct f32x16 {
  __m512 v;
};
struct i32x16 {
  __m512i v;
};
struct mask16 {
  __mmask16 m;
};

IBID_INLINE f32x16 zero() { return {_mm512_setzero_ps()}; }
IBID_INLINE f32x16 broadcast(float x) { return {_mm512_set1_ps(x)}; }
IBID_INLINE f32x16 load(const float* p) { return {_mm512_loadu_ps(p)}; }
IBID_INLINE void store(float* p, f32x16 x) { _mm512_storeu_ps(p, x.v); }
IBID_INLINE f32x16 add(f32x16 a, f32x16 b) { return {_mm512_add_ps(a.v, b.v)}; }
IBID_INLINE f32x16 sub(f32x16 a, f32x16 b) { return {_mm512_sub_ps(a.v, b.v)}; }
IBID_INLINE f32x16 mul(f32x16 a, f32x16 b) { return {_mm512_mul_ps(a.v, b.v)}; }
IBID_INLINE f32x16 div(f32x16 a, f32x16 b) { return {_mm512_div_ps(a.v, b.v)}; }
IBID_INLINE f32x16 sqrt(f32x16 a) { return {_mm512_sqrt_ps(a.v)}; }
IBID_INLINE f32x16 fma(f32x16 a, f32x16 b, f32x16 c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
IBID_INLINE f32x16 min(f32x16 a, f32x16 b) { return {_mm512_min_ps(a.v, b.v)}; }
IBID_INLINE f32x16 max(f32x16 a, f32x16 b) { return {_mm512_max_ps(a.v, b.v)}; }

IBID_INLINE i32x16 broadcast_i(int32_t x) { return {_mm512_set1_epi32(x)}; }
IBID_INLINE i32x16 load_i(const int32_t* p) { return {_mm512_loadu_si512(p)}; }
IBID_INLINE void store_i(int32_t* p, i32x16 x) { _mm512_storeu_si512(p, x.v); }
IBID_INLINE i32x16 load_i8(const void* p) {
  return {_mm512_cvtepi8_epi32(_mm_loadu_si128(static_cast<const __m128i*>(p)))};
}
IBID_INLINE void store_i8(int8_t* p, i32x16 x) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtepi32_epi8(x.v));
}
IBID_INLINE i32x16 add(i32x16 a, i32x16 b) { return {_mm512_add_epi32(a.v, b.v)}; }
IBID_INLINE i32x16 sub(i32x16 a, i32x16 b) { return {_mm512_sub_epi32(a.v, b.v)}; }
IBID_INLINE i32x16 mul(i32x16 a, i32x16 b) { return {_mm512_mullo_epi32(a.v, b.v)}; }
IBID_INLINE i32x16 and_(i32x16 a, i32x16 b) { return {_mm512_and_si512(a.v, b.v)}; }
IBID_INLINE i32x16 or_(i32x16 a, i32x16 b) { return {_mm512_or_si512(a.v, b.v)}; }
IBID_INLINE i32x16 xor_(i32x16 a, i32x16 b) { return {_mm512_xor_si512(a.v, b.v)}; }
IBID_INLINE i32x16 max(i32x16 a, i32x16 b) { return {_mm512_max_epi32(a.v, b.v)}; }
template <int N>
IBID_INLINE i32x16 shift_left(i32x16 a) {
  return {_mm512_slli_epi32(a.v, N)};
}
template <int N>  // logical
IBID_INLINE i32x16 shift_right(i32x16 a) {
  return {_mm512_srli_epi32(a.v, N)};
}
IBID_INLINE i32x16 bits(f32x16 x) { return {_mm512_castps_si512(x.v)}; }
IBID_INLINE f32x16 from_bits(i32x16 x) { return {_mm512_castsi512_ps(x.v)}; }
IBID_INLINE i32x16 to_int(f32x16 x) { return {_mm512_cvtps_epi32(x.v)}; }
IBID_INLINE f32x16 from_int(i32x16 x) { return {_mm512_cvtepi32_ps(x.v)}; }

IBID_INLINE mask16 less(f32x16 a, f32x16 b) { return {_mm512_cmp_ps_mask(a.v, b.v, _CMP_LT_OQ)}; }
IBID_INLINE mask16 less(i32x16 a, i32x16 b) { return {_mm512_cmplt_epi32_mask(a.v, b.v)}; }
IBID_INLINE mask16 equal(i32x16 a, i32x16 b) { return {_mm512_cmpeq_epi32_mask(a.v, b.v)}; }
IBID_INLINE mask16 is_nan(f32x16 a) { return {_mm512_cmp_ps_mask(a.v, a.v, _CMP_UNORD_Q)}; }
IBID_INLINE f32x16 select(mask16 m, f32x16 yes, f32x16 no) { return {_mm512_mask_blend_ps(m.m, no.v, yes.v)}; }
IBID_INLINE i32x16 select(mask16 m, i32x16 yes, i32x16 no) { return {_mm512_mask_blend_epi32(m.m, no.v, yes.v)}; }

IBID_INLINE float hsum(f32x16 x) {
  const __m256 a = _mm256_add_ps(_mm512_castps512_ps256(x.v), _mm512_extractf32x8_ps(x.v, 1));
  const __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
  const __m128 c = _mm_add_ps(b, _mm_movehl_ps(b, b));
  return _mm_cvtss_f32(_mm_add_ss(c, _mm_movehdup_ps(c)));
}
IBID_INLINE float hmax(f32x16 x) {
  const __m256 a = _mm256_max_ps(_mm512_castps512_ps256(x.v), _mm512_extractf32x8_ps(x.v, 1));
  const __m128 b = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
  const __m128 c = _mm_max_ps(b, _mm_movehl_ps(b, b));
  return _mm_cvtss_f32(_mm_max_ss(c, _mm_movehdup_ps(c)));
}

template <typename Op>
IBID_INLINE i32x4 fold(const i32x16 (&x)[4], Op op) {
  const i32x16 a = op(i32x16{_mm512_unpacklo_epi32(x[0].v, x[1].v)}, i32x16{_mm512_unpackhi_epi32(x[0].v, x[1].v)});
  const i32x16 b = op(i32x16{_mm512_unpacklo_epi32(x[2].v, x[3].v)}, i32x16{_mm512_unpackhi_epi32(x[2].v, x[3].v)});
  i32x16 r = op(i32x16{_mm512_unpacklo_epi64(a.v, b.v)}, i32x16{_mm512_unpackhi_epi64(a.v, b.v)});
  r = op(r, i32x16{_mm512_shuffle_i64x2(r.v, r.v, 0x4e)});
  r = op(r, i32x16{_mm512_shuffle_i64x2(r.v, r.v, 0xb1)});
  return (i32x4)_mm512_castsi512_si128(r.v);
}

// x[i] lane j and x[j] lane i change places.
IBID_INLINE void transpose(f32x16 (&x)[16]) {
  __m512 a[16], b[16];
#pragma GCC unroll 16
  for (int i = 0; i < 16; i += 2) {  // pairs of rows
    a[i] = _mm512_unpacklo_ps(x[i].v, x[i + 1].v);
    a[i + 1] = _mm512_unpackhi_ps(x[i].v, x[i + 1].v);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 16; i += 4) {  // b[i + j]: column j of each 4, of 4 rows
    b[i] = _mm512_shuffle_ps(a[i], a[i + 2], 0x44);
    b[i + 1] = _mm512_shuffle_ps(a[i], a[i + 2], 0xee);
    b[i + 2] = _mm512_shuffle_ps(a[i + 1], a[i + 3], 0x44);
    b[i + 3] = _mm512_shuffle_ps(a[i + 1], a[i + 3], 0xee);
  }
#pragma GCC unroll 4
  for (int j = 0; j < 4; ++j) {  // quarters of b[j], b[4 + j], b[8 + j], b[12 + j]
    const __m512 low = _mm512_shuffle_f32x4(b[j], b[4 + j], 0x88),
                 low2 = _mm512_shuffle_f32x4(b[8 + j], b[12 + j], 0x88);
    const __m512 high = _mm512_shuffle_f32x4(b[j], b[4 + j], 0xdd),
                 high2 = _mm512_shuffle_f32x4(b[8 + j], b[12 + j], 0xdd);
    x[j].v = _mm512_shuffle_f32x4(low, low2, 0x88);
    x[4 + j].v = _mm512_shuffle_f32x4(high, high2, 0x88);
    x[8 + j].v = _mm512_shuffle_f32x4(low, low2, 0xdd);
    x[12 + j].v = _mm512_shuffle_f32x4(high, high2, 0xdd);
  }
}

IBID_INLINE f32x16 load_f16(const uint16_t* p) {
  return {_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)))};
}
// Sixteen bytes of E4M3 but NaN, over 256: shifted they are halves, subnormals too.
IBID_INLINE f32x16 load_e4m3(const void* p) {
  const __m256i x = _mm256_cvtepi8_epi16(_mm_loadu_si128(static_cast<const __m128i*>(p)));
  const __m256i size = _mm256_slli_epi16(_mm256_and_si256(x, _mm256_set1_epi16(0x7f)), 7);
  return {_mm512_cvtph_ps(_mm256_or_si256(size, _mm256_and_si256(x, _mm256_set1_epi16(-0x8000))))};
}
IBID_INLINE void store_f16(uint16_t* p, f32x16 x) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p),
                      _mm512_cvtps_ph(x.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
IBID_INLINE f32x16 load_bf16(const uint16_t* p) {
  const __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  return {_mm512_castsi512_ps(_mm512_slli_epi32(wide, 16))};
}
IBID_INLINE void store_bf16(uint16_t* p, f32x16 x) {
  const __m512i u = _mm512_castps_si512(x.v);
  const __m512i lsb = _mm512_and_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(1));
  __m512i r = _mm512_srli_epi32(_mm512_add_epi32(u, _mm512_add_epi32(lsb, _mm512_set1_epi32(0x7fff))), 16);
  const __m512i quiet = _mm512_or_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(0x40));
  r = _mm512_mask_blend_epi32(_mm512_cmp_ps_mask(x.v, x.v, _CMP_UNORD_Q), r, quiet);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtepi32_epi16(r));
}

}  // namespace ibid::cpu::IBID_ISA
