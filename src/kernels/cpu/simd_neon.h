// 16 lanes as four registers of 4: what every 64-bit ARM has. Included by simd.h.
#pragma once

#include <arm_neon.h>

namespace ibid::cpu::IBID_ISA {

struct f32x16 {
  float32x4_t v[4];
};
struct i32x16 {
  int32x4_t v[4];
};
struct mask16 {
  uint32x4_t v[4];  // all ones where true
};

#define IBID_EACH_QUARTER(type, expression)        \
  type r;                                          \
  for (int q = 0; q < 4; ++q) r.v[q] = expression; \
  return r

IBID_INLINE f32x16 broadcast(float x) { IBID_EACH_QUARTER(f32x16, vdupq_n_f32(x)); }
IBID_INLINE f32x16 zero() { return broadcast(0.0f); }
IBID_INLINE f32x16 load(const float* p) { IBID_EACH_QUARTER(f32x16, vld1q_f32(p + 4 * q)); }
IBID_INLINE void store(float* p, f32x16 x) {
  for (int q = 0; q < 4; ++q) vst1q_f32(p + 4 * q, x.v[q]);
}
IBID_INLINE f32x16 add(f32x16 a, f32x16 b) { IBID_EACH_QUARTER(f32x16, vaddq_f32(a.v[q], b.v[q])); }
IBID_INLINE f32x16 sub(f32x16 a, f32x16 b) { IBID_EACH_QUARTER(f32x16, vsubq_f32(a.v[q], b.v[q])); }
IBID_INLINE f32x16 mul(f32x16 a, f32x16 b) { IBID_EACH_QUARTER(f32x16, vmulq_f32(a.v[q], b.v[q])); }
IBID_INLINE f32x16 div(f32x16 a, f32x16 b) { IBID_EACH_QUARTER(f32x16, vdivq_f32(a.v[q], b.v[q])); }
IBID_INLINE f32x16 sqrt(f32x16 a) { IBID_EACH_QUARTER(f32x16, vsqrtq_f32(a.v[q])); }
IBID_INLINE f32x16 fma(f32x16 a, f32x16 b, f32x16 c) { IBID_EACH_QUARTER(f32x16, vfmaq_f32(c.v[q], a.v[q], b.v[q])); }
// Not vminq and vmaxq, which give NaN where either is one.
IBID_INLINE float32x4_t max_(float32x4_t a, float32x4_t b) { return vbslq_f32(vcgtq_f32(a, b), a, b); }
IBID_INLINE f32x16 min(f32x16 a, f32x16 b) {
  IBID_EACH_QUARTER(f32x16, vbslq_f32(vcltq_f32(a.v[q], b.v[q]), a.v[q], b.v[q]));
}
IBID_INLINE f32x16 max(f32x16 a, f32x16 b) { IBID_EACH_QUARTER(f32x16, max_(a.v[q], b.v[q])); }

IBID_INLINE i32x16 broadcast_i(int32_t x) { IBID_EACH_QUARTER(i32x16, vdupq_n_s32(x)); }
IBID_INLINE i32x16 load_i(const int32_t* p) { IBID_EACH_QUARTER(i32x16, vld1q_s32(p + 4 * q)); }
IBID_INLINE void store_i(int32_t* p, i32x16 x) {
  for (int q = 0; q < 4; ++q) vst1q_s32(p + 4 * q, x.v[q]);
}
IBID_INLINE i32x16 load_i8(const void* p) {
  const int8x16_t bytes = vld1q_s8(static_cast<const int8_t*>(p));
  const int16x8_t lo = vmovl_s8(vget_low_s8(bytes)), hi = vmovl_high_s8(bytes);
  return {{vmovl_s16(vget_low_s16(lo)), vmovl_high_s16(lo), vmovl_s16(vget_low_s16(hi)), vmovl_high_s16(hi)}};
}
IBID_INLINE void store_i8(int8_t* p, i32x16 x) {
  const int16x8_t lo = vmovn_high_s32(vmovn_s32(x.v[0]), x.v[1]), hi = vmovn_high_s32(vmovn_s32(x.v[2]), x.v[3]);
  vst1q_s8(p, vmovn_high_s16(vmovn_s16(lo), hi));
}
IBID_INLINE i32x16 add(i32x16 a, i32x16 b) { IBID_EACH_QUARTER(i32x16, vaddq_s32(a.v[q], b.v[q])); }
IBID_INLINE i32x16 sub(i32x16 a, i32x16 b) { IBID_EACH_QUARTER(i32x16, vsubq_s32(a.v[q], b.v[q])); }
IBID_INLINE i32x16 mul(i32x16 a, i32x16 b) { IBID_EACH_QUARTER(i32x16, vmulq_s32(a.v[q], b.v[q])); }
IBID_INLINE i32x16 and_(i32x16 a, i32x16 b) { IBID_EACH_QUARTER(i32x16, vandq_s32(a.v[q], b.v[q])); }
IBID_INLINE i32x16 or_(i32x16 a, i32x16 b) { IBID_EACH_QUARTER(i32x16, vorrq_s32(a.v[q], b.v[q])); }
IBID_INLINE i32x16 xor_(i32x16 a, i32x16 b) { IBID_EACH_QUARTER(i32x16, veorq_s32(a.v[q], b.v[q])); }
IBID_INLINE i32x16 max(i32x16 a, i32x16 b) { IBID_EACH_QUARTER(i32x16, vmaxq_s32(a.v[q], b.v[q])); }
template <int N>
IBID_INLINE i32x16 shift_left(i32x16 a) {
  IBID_EACH_QUARTER(i32x16, vshlq_n_s32(a.v[q], N));
}
template <int N>  // logical
IBID_INLINE i32x16 shift_right(i32x16 a) {
  IBID_EACH_QUARTER(i32x16, vreinterpretq_s32_u32(vshrq_n_u32(vreinterpretq_u32_s32(a.v[q]), N)));
}
IBID_INLINE i32x16 bits(f32x16 x) { IBID_EACH_QUARTER(i32x16, vreinterpretq_s32_f32(x.v[q])); }
IBID_INLINE f32x16 from_bits(i32x16 x) { IBID_EACH_QUARTER(f32x16, vreinterpretq_f32_s32(x.v[q])); }
IBID_INLINE i32x16 to_int(f32x16 x) { IBID_EACH_QUARTER(i32x16, vcvtnq_s32_f32(x.v[q])); }
IBID_INLINE f32x16 from_int(i32x16 x) { IBID_EACH_QUARTER(f32x16, vcvtq_f32_s32(x.v[q])); }

IBID_INLINE mask16 less(f32x16 a, f32x16 b) { IBID_EACH_QUARTER(mask16, vcltq_f32(a.v[q], b.v[q])); }
IBID_INLINE mask16 less(i32x16 a, i32x16 b) { IBID_EACH_QUARTER(mask16, vcltq_s32(a.v[q], b.v[q])); }
IBID_INLINE mask16 equal(i32x16 a, i32x16 b) { IBID_EACH_QUARTER(mask16, vceqq_s32(a.v[q], b.v[q])); }
IBID_INLINE mask16 is_nan(f32x16 a) { IBID_EACH_QUARTER(mask16, vmvnq_u32(vceqq_f32(a.v[q], a.v[q]))); }
IBID_INLINE bool all(mask16 m) {
  return vminvq_u32(vandq_u32(vandq_u32(m.v[0], m.v[1]), vandq_u32(m.v[2], m.v[3]))) != 0;
}
IBID_INLINE f32x16 select(mask16 m, f32x16 yes, f32x16 no) {
  IBID_EACH_QUARTER(f32x16, vbslq_f32(m.v[q], yes.v[q], no.v[q]));
}
IBID_INLINE i32x16 select(mask16 m, i32x16 yes, i32x16 no) {
  IBID_EACH_QUARTER(i32x16, vbslq_s32(m.v[q], yes.v[q], no.v[q]));
}

IBID_INLINE float hsum(f32x16 x) {
  const float32x4_t b = vaddq_f32(vaddq_f32(x.v[0], x.v[2]), vaddq_f32(x.v[1], x.v[3]));
  return vpadds_f32(vadd_f32(vget_low_f32(b), vget_high_f32(b)));
}
IBID_INLINE float hmax(f32x16 x) {
  const float32x4_t b = max_(max_(x.v[0], x.v[2]), max_(x.v[1], x.v[3]));
  const float even = b[0] > b[2] ? b[0] : b[2], odd = b[1] > b[3] ? b[1] : b[3];
  return even > odd ? even : odd;
}

IBID_INLINE f32x16 from_halves(uint16x8_t low, uint16x8_t high) {
  const float16x8_t lo = vreinterpretq_f16_u16(low), hi = vreinterpretq_f16_u16(high);
  return {
      {vcvt_f32_f16(vget_low_f16(lo)), vcvt_high_f32_f16(lo), vcvt_f32_f16(vget_low_f16(hi)), vcvt_high_f32_f16(hi)}};
}
IBID_INLINE f32x16 load_f16(const uint16_t* p) { return from_halves(vld1q_u16(p), vld1q_u16(p + 8)); }
// Sixteen bytes of E4M3 but NaN, over 256: shifted they are halves, subnormals too.
IBID_INLINE uint16x8_t e4m3_as_halves(int8x8_t bytes) {
  const uint16x8_t x = vreinterpretq_u16_s16(vmovl_s8(bytes));
  return vorrq_u16(vshlq_n_u16(vandq_u16(x, vdupq_n_u16(0x7f)), 7), vandq_u16(x, vdupq_n_u16(0x8000)));
}
IBID_INLINE f32x16 load_e4m3(const void* p) {
  const int8x16_t bytes = vld1q_s8(static_cast<const int8_t*>(p));
  return from_halves(e4m3_as_halves(vget_low_s8(bytes)), e4m3_as_halves(vget_high_s8(bytes)));
}
IBID_INLINE void store_f16(uint16_t* p, f32x16 x) {
  vst1q_u16(p, vreinterpretq_u16_f16(vcvt_high_f16_f32(vcvt_f16_f32(x.v[0]), x.v[1])));
  vst1q_u16(p + 8, vreinterpretq_u16_f16(vcvt_high_f16_f32(vcvt_f16_f32(x.v[2]), x.v[3])));
}
IBID_INLINE f32x16 load_bf16(const uint16_t* p) {
  const uint16x8_t lo = vld1q_u16(p), hi = vld1q_u16(p + 8);
  const uint32x4_t u[4] = {vshll_n_u16(vget_low_u16(lo), 16), vshll_high_n_u16(lo, 16),
                           vshll_n_u16(vget_low_u16(hi), 16), vshll_high_n_u16(hi, 16)};
  IBID_EACH_QUARTER(f32x16, vreinterpretq_f32_u32(u[q]));
}
IBID_INLINE void store_bf16(uint16_t* p, f32x16 x) {
  const i32x16 u = bits(x);
  const i32x16 top = shift_right<16>(u);
  const i32x16 rounded = shift_right<16>(add(u, add(and_(top, broadcast_i(1)), broadcast_i(0x7fff))));
  const i32x16 r = select(is_nan(x), or_(top, broadcast_i(0x40)), rounded);
  for (int q = 0; q < 4; ++q) vst1_u16(p + 4 * q, vmovn_u32(vreinterpretq_u32_s32(r.v[q])));
}
#undef IBID_EACH_QUARTER

}  // namespace ibid::cpu::IBID_ISA
