// 16 lanes as four vectors of 4 in the compiler's own vector extension: what every machine of the architecture has, and
// the fallback on new ones. Correct first: fma is emulated, conversions of f16 are done lane by lane. Included by
// simd.h.
#pragma once

#if defined(__SSE2__)
#include <emmintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

namespace ibid::cpu::IBID_ISA {

typedef uint32_t u32x4_ __attribute__((vector_size(16)));
typedef double f64x2_ __attribute__((vector_size(16)));
typedef int64_t i64x2_ __attribute__((vector_size(16)));

struct f32x16 {
  f32x4 v[4];
};
struct i32x16 {
  i32x4 v[4];
};
struct mask16 {
  i32x4 v[4];  // all ones where true
};

#define IBID_EACH_QUARTER(type, expression)        \
  type r;                                          \
  for (int q = 0; q < 4; ++q) r.v[q] = expression; \
  return r

IBID_INLINE f32x16 broadcast(float x) { IBID_EACH_QUARTER(f32x16, (f32x4{x, x, x, x})); }
IBID_INLINE f32x16 zero() { return broadcast(0.0f); }
IBID_INLINE f32x16 load(const float* p) {
  f32x16 r;
  __builtin_memcpy(&r, p, sizeof r);
  return r;
}
IBID_INLINE void store(float* p, f32x16 x) { __builtin_memcpy(p, &x, sizeof x); }
IBID_INLINE f32x16 add(f32x16 a, f32x16 b) { IBID_EACH_QUARTER(f32x16, a.v[q] + b.v[q]); }
IBID_INLINE f32x16 sub(f32x16 a, f32x16 b) { IBID_EACH_QUARTER(f32x16, a.v[q] - b.v[q]); }
IBID_INLINE f32x16 mul(f32x16 a, f32x16 b) { IBID_EACH_QUARTER(f32x16, a.v[q] * b.v[q]); }
IBID_INLINE f32x16 div(f32x16 a, f32x16 b) { IBID_EACH_QUARTER(f32x16, a.v[q] / b.v[q]); }
IBID_INLINE f32x16 sqrt(f32x16 a) {
  f32x16 r;
  for (int q = 0; q < 4; ++q) {
    for (int i = 0; i < 4; ++i) r.v[q][i] = __builtin_sqrtf(a.v[q][i]);
  }
  return r;
}
IBID_INLINE f32x16 min(f32x16 a, f32x16 b) { IBID_EACH_QUARTER(f32x16, a.v[q] < b.v[q] ? a.v[q] : b.v[q]); }
IBID_INLINE f32x16 max(f32x16 a, f32x16 b) { IBID_EACH_QUARTER(f32x16, a.v[q] > b.v[q] ? a.v[q] : b.v[q]); }

// A product of floats is exact in double. The sum with c is rounded to odd: to nearest, then, where inexact (the error
// of Knuth's two-sum is not zero) and the last bit even, one step towards the error, which is the odd neighbour. 53
// bits rounded to odd and then to 24 to nearest is the sum rounded once (Boldo and Melquiond, 2008).
IBID_INLINE f64x2_ fma_to_odd_(f64x2_ product, f64x2_ c) {
  const f64x2_ s = product + c;
  const f64x2_ c_part = s - product;
  const f64x2_ error = (product - (s - c_part)) + (c - c_part);
  i64x2_ u = (i64x2_)s;
  const i64x2_ inexact = (i64x2_)(error < 0.0) | (i64x2_)(error > 0.0);  // none where s is infinite or NaN: so is error
  const i64x2_ even = (u & 1) - 1;                                       // all ones where even
  const i64x2_ away_from_zero = ~((i64x2_)(error < 0.0) ^ (i64x2_)(s < 0.0));
  u += inexact & even & ((away_from_zero & 2) - 1);
  return (f64x2_)u;
}
// Two floats of x, from lane i, as doubles, and back. The intrinsics are not for speed: g++ 12 at -O3 turns chains of
// lane-by-lane conversions into vectors and loses the rounding to float between two fmas.
IBID_INLINE f64x2_ widen_(f32x4 x, int i) {
#if defined(__SSE2__)
  return (f64x2_)_mm_cvtps_pd(i == 0 ? (__m128)x : _mm_movehl_ps((__m128)x, (__m128)x));
#elif defined(__aarch64__)
  return (f64x2_)(i == 0 ? vcvt_f64_f32(vget_low_f32((float32x4_t)x)) : vcvt_high_f64_f32((float32x4_t)x));
#else
  return f64x2_{x[i], x[i + 1]};
#endif
}
IBID_INLINE f32x4 narrow_(f64x2_ lo, f64x2_ hi) {
#if defined(__SSE2__)
  return (f32x4)_mm_movelh_ps(_mm_cvtpd_ps((__m128d)lo), _mm_cvtpd_ps((__m128d)hi));
#elif defined(__aarch64__)
  return (f32x4)vcvt_high_f32_f64(vcvt_f32_f64((float64x2_t)lo), (float64x2_t)hi);
#else
  return f32x4{static_cast<float>(lo[0]), static_cast<float>(lo[1]), static_cast<float>(hi[0]),
               static_cast<float>(hi[1])};
#endif
}
IBID_INLINE f32x16 fma(f32x16 a, f32x16 b, f32x16 c) {
  f32x16 r;
  for (int q = 0; q < 4; ++q) {
    r.v[q] = narrow_(fma_to_odd_(widen_(a.v[q], 0) * widen_(b.v[q], 0), widen_(c.v[q], 0)),
                     fma_to_odd_(widen_(a.v[q], 2) * widen_(b.v[q], 2), widen_(c.v[q], 2)));
  }
  return r;
}

IBID_INLINE i32x16 broadcast_i(int32_t x) { IBID_EACH_QUARTER(i32x16, (i32x4{x, x, x, x})); }
IBID_INLINE i32x16 load_i(const int32_t* p) {
  i32x16 r;
  __builtin_memcpy(&r, p, sizeof r);
  return r;
}
IBID_INLINE void store_i(int32_t* p, i32x16 x) { __builtin_memcpy(p, &x, sizeof x); }
IBID_INLINE i32x16 load_i8(const void* p) {
  i32x16 r;
  for (int i = 0; i < 16; ++i) r.v[i / 4][i % 4] = static_cast<const int8_t*>(p)[i];
  return r;
}
IBID_INLINE void store_i8(int8_t* p, i32x16 x) {
  for (int i = 0; i < 16; ++i) p[i] = static_cast<int8_t>(x.v[i / 4][i % 4]);
}
IBID_INLINE i32x16 add(i32x16 a, i32x16 b) { IBID_EACH_QUARTER(i32x16, (i32x4)((u32x4_)a.v[q] + (u32x4_)b.v[q])); }
IBID_INLINE i32x16 sub(i32x16 a, i32x16 b) { IBID_EACH_QUARTER(i32x16, (i32x4)((u32x4_)a.v[q] - (u32x4_)b.v[q])); }
IBID_INLINE i32x16 mul(i32x16 a, i32x16 b) { IBID_EACH_QUARTER(i32x16, (i32x4)((u32x4_)a.v[q] * (u32x4_)b.v[q])); }
IBID_INLINE i32x16 and_(i32x16 a, i32x16 b) { IBID_EACH_QUARTER(i32x16, a.v[q] & b.v[q]); }
IBID_INLINE i32x16 or_(i32x16 a, i32x16 b) { IBID_EACH_QUARTER(i32x16, a.v[q] | b.v[q]); }
IBID_INLINE i32x16 xor_(i32x16 a, i32x16 b) { IBID_EACH_QUARTER(i32x16, a.v[q] ^ b.v[q]); }
IBID_INLINE i32x16 max(i32x16 a, i32x16 b) { IBID_EACH_QUARTER(i32x16, a.v[q] > b.v[q] ? a.v[q] : b.v[q]); }
template <int N>
IBID_INLINE i32x16 shift_left(i32x16 a) {
  IBID_EACH_QUARTER(i32x16, (i32x4)((u32x4_)a.v[q] << N));
}
template <int N>  // logical
IBID_INLINE i32x16 shift_right(i32x16 a) {
  IBID_EACH_QUARTER(i32x16, (i32x4)((u32x4_)a.v[q] >> N));
}
IBID_INLINE i32x16 bits(f32x16 x) { IBID_EACH_QUARTER(i32x16, (i32x4)x.v[q]); }
IBID_INLINE f32x16 from_bits(i32x16 x) { IBID_EACH_QUARTER(f32x16, (f32x4)x.v[q]); }
IBID_INLINE i32x16 to_int(f32x16 x) {
  i32x16 r;
  for (int q = 0; q < 4; ++q) {
    for (int i = 0; i < 4; ++i) r.v[q][i] = static_cast<int32_t>(__builtin_rintf(x.v[q][i]));
  }
  return r;
}
IBID_INLINE f32x16 from_int(i32x16 x) { IBID_EACH_QUARTER(f32x16, __builtin_convertvector(x.v[q], f32x4)); }

IBID_INLINE mask16 less(f32x16 a, f32x16 b) { IBID_EACH_QUARTER(mask16, a.v[q] < b.v[q]); }
IBID_INLINE mask16 less(i32x16 a, i32x16 b) { IBID_EACH_QUARTER(mask16, a.v[q] < b.v[q]); }
IBID_INLINE mask16 equal(i32x16 a, i32x16 b) { IBID_EACH_QUARTER(mask16, a.v[q] == b.v[q]); }
IBID_INLINE mask16 is_nan(f32x16 a) { IBID_EACH_QUARTER(mask16, a.v[q] != a.v[q]); }
IBID_INLINE bool all(mask16 m) {
  const i64x2_ both = (i64x2_)(m.v[0] & m.v[1] & m.v[2] & m.v[3]);
  return (both[0] & both[1]) == -1;
}
IBID_INLINE i32x16 select(mask16 m, i32x16 yes, i32x16 no) {
  IBID_EACH_QUARTER(i32x16, (m.v[q] & yes.v[q]) | (~m.v[q] & no.v[q]));
}
IBID_INLINE f32x16 select(mask16 m, f32x16 yes, f32x16 no) { return from_bits(select(m, bits(yes), bits(no))); }

IBID_INLINE float hsum(f32x16 x) {
  const f32x4 lo = x.v[0] + x.v[2], hi = x.v[1] + x.v[3];
  const f32x4 b = lo + hi;
  return (b[0] + b[2]) + (b[1] + b[3]);
}
IBID_INLINE float hmax(f32x16 x) {
  const f32x4 lo = x.v[0] > x.v[2] ? x.v[0] : x.v[2], hi = x.v[1] > x.v[3] ? x.v[1] : x.v[3];
  const f32x4 b = lo > hi ? lo : hi;
  const float even = b[0] > b[2] ? b[0] : b[2], odd = b[1] > b[3] ? b[1] : b[3];
  return even > odd ? even : odd;
}

IBID_INLINE float f32_from_f16_(uint16_t h) {
  const uint32_t sign = static_cast<uint32_t>(h & 0x8000) << 16, exponent = (h >> 10) & 31, fraction = h & 0x3ff;
  uint32_t u;
  if (exponent == 31) {
    u = sign | 0x7f800000 | (fraction << 13) | (fraction != 0 ? 0x400000 : 0);
  } else if (exponent != 0) {
    u = sign | ((exponent + 112) << 23) | (fraction << 13);
  } else {  // zero and subnormals: fraction * 2^-24 is exact
    const float magnitude = static_cast<float>(fraction) * 0x1p-24f;
    __builtin_memcpy(&u, &magnitude, 4);
    u |= sign;
  }
  float x;
  __builtin_memcpy(&x, &u, 4);
  return x;
}
IBID_INLINE uint16_t f16_from_f32_(float x) {
  uint32_t u;
  __builtin_memcpy(&u, &x, 4);
  const uint16_t sign = static_cast<uint16_t>((u >> 16) & 0x8000);
  u &= 0x7fffffff;
  if (u > 0x7f800000) return static_cast<uint16_t>(sign | 0x7e00 | ((u >> 13) & 0x3ff));
  if (u >= 0x477ff000) return static_cast<uint16_t>(sign | 0x7c00);  // 65520 and more round to infinity
  if (u < 0x38800000) {  // below 2^-14: adding 1/2 leaves the rounded multiple of 2^-24 in the low bits
    float magnitude;
    __builtin_memcpy(&magnitude, &u, 4);
    magnitude += 0.5f;
    __builtin_memcpy(&u, &magnitude, 4);
    return static_cast<uint16_t>(sign | (u - 0x3f000000));
  }
  const uint32_t rounded = u + 0xfff + ((u >> 13) & 1);
  return static_cast<uint16_t>(sign | ((rounded - 0x38000000) >> 13));
}
IBID_INLINE f32x16 load_f16(const uint16_t* p) {
  f32x16 r;
  for (int i = 0; i < 16; ++i) r.v[i / 4][i % 4] = f32_from_f16_(p[i]);
  return r;
}
// Sixteen bytes of E4M3 but NaN, over 256: shifted they are halves, subnormals too.
IBID_INLINE f32x16 load_e4m3(const void* p) {
  f32x16 r;
  for (int i = 0; i < 16; ++i) {
    const uint8_t x = static_cast<const uint8_t*>(p)[i];
    r.v[i / 4][i % 4] = f32_from_f16_(static_cast<uint16_t>((x & 0x7f) << 7 | (x & 0x80) << 8));
  }
  return r;
}
IBID_INLINE void store_f16(uint16_t* p, f32x16 x) {
  for (int i = 0; i < 16; ++i) p[i] = f16_from_f32_(x.v[i / 4][i % 4]);
}
IBID_INLINE f32x16 load_bf16(const uint16_t* p) {
  i32x16 r;
  for (int i = 0; i < 16; ++i) r.v[i / 4][i % 4] = static_cast<int32_t>(static_cast<uint32_t>(p[i]) << 16);
  return from_bits(r);
}
IBID_INLINE void store_bf16(uint16_t* p, f32x16 x) {
  const i32x16 u = bits(x);
  const i32x16 top = shift_right<16>(u);
  const i32x16 rounded = shift_right<16>(add(u, add(and_(top, broadcast_i(1)), broadcast_i(0x7fff))));
  const i32x16 r = select(is_nan(x), or_(top, broadcast_i(0x40)), rounded);
  for (int i = 0; i < 16; ++i) p[i] = static_cast<uint16_t>(r.v[i / 4][i % 4]);
}
#undef IBID_EACH_QUARTER

}  // namespace ibid::cpu::IBID_ISA
