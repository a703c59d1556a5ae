// exp, tanh and the activations over 16 lanes (kernels/math.h states errors and edge cases). Included after simd.h.
#pragma once

namespace ibid::cpu::IBID_ISA {

// x = n ln 2 + r: n by adding 1.5 * 2^23, which rounds to the nearest integer and leaves it in the low bits.
inline constexpr int32_t kRounderBits = 0x4b400000;  // none of them are left by a shift by 23
struct Reduced {
  f32x16 r, whole;  // whole: n as a float
  i32x16 shifted;   // n + kRounderBits
};
IBID_INLINE Reduced reduce_by_ln2(f32x16 x) {
  const f32x16 rounder = broadcast(12582912.0f);
  const f32x16 shifted = fma(x, broadcast(0x1.715476p+0f), rounder);
  const f32x16 whole = sub(shifted, rounder);
  f32x16 r = fma(whole, broadcast(-0x1.63p-1f), x);  // 9 bits of ln 2: the product is exact
  r = fma(whole, broadcast(0x1.bd0106p-13f), r);     // the rest, -2.1219444e-4
  return {r, whole, bits(shifted)};
}

// (exp(r) - 1 - r) / r^2 on |r| <= ln(2) / 2, minimax: exp is within 2^-28.2.
IBID_INLINE f32x16 exp_tail(f32x16 r) {
  f32x16 p = broadcast(0x1.6a23d0p-10f);
  p = fma(p, r, broadcast(0x1.123a20p-7f));
  p = fma(p, r, broadcast(0x1.5558f2p-5f));
  p = fma(p, r, broadcast(0x1.555492p-3f));
  return fma(p, r, broadcast(0x1.fffffcp-2f));
}

// Of n, and of n + kRounderBits.
IBID_INLINE f32x16 power_of_two(i32x16 n) { return from_bits(shift_left<23>(add(n, broadcast_i(127)))); }

IBID_INLINE f32x16 exp_reduced(f32x16 r) {
  const f32x16 p = fma(exp_tail(r), r, broadcast(1.0f));
  return fma(p, r, broadcast(1.0f));
}

// exp of x up to 89, of x <= 0 (-inf and NaN among them: of a score less its row's maximum), and of any x. One rounding
// to p * 2^n; 0 in lanes below -104, and what they would cost is not paid: a result below 2^-126 takes a processor
// hundreds of cycles.
#if defined(__AVX512F__)
IBID_INLINE f32x16 exp_up_to_89(f32x16 x) {
  const mask16 none = less(x, broadcast(-104.0f));  // rounds to 0; a NaN is not less
  const Reduced s = reduce_by_ln2(x);
  return {_mm512_maskz_scalef_ps(static_cast<__mmask16>(~none.m), exp_reduced(s.r).v, s.whole.v)};
}
IBID_INLINE f32x16 exp_below_one(f32x16 x) { return exp_up_to_89(x); }
IBID_INLINE f32x16 exp(f32x16 x) { return exp_up_to_89(min(broadcast(89.0f), x)); }  // min leaves a NaN a NaN
#else
IBID_INLINE f32x16 exp_up_to_89(f32x16 x) {
  const mask16 none = less(x, broadcast(-104.0f));
  const Reduced s = reduce_by_ln2(x);
  const f32x16 p = select(none, zero(), exp_reduced(s.r));
  const i32x16 n = select(none, broadcast_i(0), sub(s.shifted, broadcast_i(kRounderBits)));
  // n is in [-252, 254]; n + 256 is positive, so that a logical shift halves it.
  const i32x16 half = sub(shift_right<1>(add(n, broadcast_i(256))), broadcast_i(128));
  return mul(mul(p, power_of_two(half)), power_of_two(sub(n, half)));
}
// Of arguments within kNormalExp all results are normal, and n is added to their exponents: nearly always.
inline constexpr float kNormalExp = 86.5f;
IBID_INLINE f32x16 exp_normal(f32x16 x) {
  const Reduced s = reduce_by_ln2(x);
  return from_bits(add(bits(exp_reduced(s.r)), shift_left<23>(s.shifted)));
}
IBID_INLINE f32x16 exp_below_one(f32x16 x) {
  if (__builtin_expect(all(less(broadcast(-kNormalExp), x)), true)) return exp_normal(x);
  return exp_up_to_89(x);
}
IBID_INLINE f32x16 exp(f32x16 x) {
  if (__builtin_expect(all(less(abs(x), broadcast(kNormalExp))), true)) return exp_normal(x);
  return exp_up_to_89(min(broadcast(89.0f), x));  // min leaves a NaN a NaN
}
#endif

// e / (e + 2) with e = exp(2x) - 1, which keeps its digits near 0; 1 to rounding from 9.02 on.
IBID_INLINE f32x16 tanh(f32x16 x) {
  x = max(broadcast(-9.25f), min(broadcast(9.25f), x));
  const Reduced s = reduce_by_ln2(add(x, x));
  const f32x16 minus_one = fma(mul(exp_tail(s.r), s.r), s.r, s.r);
  const f32x16 power = power_of_two(s.shifted);
  const f32x16 e = fma(power, minus_one, sub(power, broadcast(1.0f)));
  return div(e, add(e, broadcast(2.0f)));
}

IBID_INLINE f32x16 silu(f32x16 x) { return div(x, add(broadcast(1.0f), exp(neg(x)))); }

// x Phi(x). The normal distribution's tail is exp(-x^2 / 2) k Q(k) with k = 1 / (1 + 0.35 |x|), in the form of
// Abramowitz and Stegun 26.2.17; Q meets it at 9 Chebyshev nodes and is within 2^-24.6 of it up to |x| = 13.5, where it
// ends.
IBID_INLINE f32x16 gelu(f32x16 x) {
  const f32x16 one = broadcast(1.0f);
  const f32x16 k = div(one, fma(abs(x), broadcast(0.35f), one));
  f32x16 q = broadcast(-0x1.e5207cp-6f);
  q = fma(q, k, broadcast(0x1.2b779ap-3f));
  q = fma(q, k, broadcast(-0x1.0a9606p-2f));
  q = fma(q, k, broadcast(0x1.50aca2p-3f));
  q = fma(q, k, broadcast(-0x1.b45b64p-6f));
  q = fma(q, k, broadcast(0x1.b619dap-4f));
  q = fma(q, k, broadcast(0x1.e96344p-4f));
  q = fma(q, k, broadcast(0x1.1e883ap-3f));
  q = fma(q, k, broadcast(0x1.1df084p-3f));
  const f32x16 tail = mul(exp_below_one(mul(mul(x, x), broadcast(-0.5f))), mul(k, q));
  return mul(x, select(less(x, zero()), tail, sub(one, tail)));
}

// 2u = x (2 sqrt(2 / pi) + 0.044715 * 2 sqrt(2 / pi) x^2)
IBID_INLINE f32x16 gelu_tanh(f32x16 x) {
  const f32x16 slope = fma(mul(x, x), broadcast(-0.07135481f), broadcast(-1.5957691f));
  return div(x, add(broadcast(1.0f), exp(mul(x, slope))));
}

}  // namespace ibid::cpu::IBID_ISA
