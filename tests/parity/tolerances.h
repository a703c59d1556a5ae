// What an op may differ from its reference in double precision, each with its reason. The bound for an element is
// absolute + relative * |reference|; bits between instruction sets, thread counts and batches have no tolerance at all.
#pragma once

namespace ibid::parity {

struct Tolerance {
  double absolute;
  double relative;
};

inline constexpr double kUlp = 1.0 / (1 << 24);  // half a unit in the last place of F32, relative: one rounding

// The mean of squares is off by its lanes' roundings, at most (n / 16 + 4) and mostly their square root; then a root, a
// division and two products: 4 roundings more.
inline constexpr Tolerance kRmsNorm = {1e-30, 64 * kUlp};
// A sum over n values after a subtraction that cancels: absolute, for rows whose deviation is of the size of 1. A row
// of one value is its bias, of two nearly equal ones anything: the deviations' own roundings divided by them.
inline constexpr Tolerance kLayerNorm = {64 * kUlp, 64 * kUlp};
// One rounding.
inline constexpr Tolerance kAdd = {0.0, kUlp};
// The factor is rounded, and the product.
inline constexpr Tolerance kScaleByPosition = {0.0, 2 * kUlp};
// exp within 2 roundings of its value, a sum, a division and a product; near -88 and below exp(-x) becomes infinite,
// and the result 0 where it is smaller than 1e-36.
inline constexpr Tolerance kSiluMul = {1e-36, 6 * kUlp};
// As silu, but the argument of exp, up to 88 in size, is a rounded product of a rounded number.
inline constexpr Tolerance kClampedSiluMul = {1e-36, 192 * kUlp};
// As silu, but the argument of exp is off by 3 roundings and up to 88 in size: 264 roundings where the result is 1e-38,
// 3 |2u| in general; |2u| is below 16 where the result is above 1e-6.
inline constexpr Tolerance kGeluMul = {1e-12, 64 * kUlp};
// Two roundings of products; the sum may cancel, so the bound is absolute, for inputs below 4 in size.
inline constexpr Tolerance kRope = {4 * 4 * kUlp, 2 * kUlp};
// The angle is exact to double's rounding times its size; the result is rounded once.
inline constexpr Tolerance kRopeAngles = {1e-9, 2 * kUlp};
// tanh within 6 roundings, a division and a product.
inline constexpr Tolerance kSoftCap = {1e-37, 10 * kUlp};
// A sum of V exponentials in 16 lanes: V / 16 roundings at worst, their square root mostly; its logarithm turns
// relative errors into absolute ones. Then two roundings of numbers as large as the result.
inline constexpr Tolerance kLogSoftmax = {4e-6, 3 * kUlp};
// Scores are off by the roundings of D products (for q, k below 4 and D <= 256: 3e-5 times the scale of 1 / sqrt(D)),
// which exp turns into relative errors of the weights; the values are below 4, so that is the bound. KV dtypes add
// nothing: the reference reads the same rounded cells.
inline constexpr Tolerance kAttention = {6e-5, 1e-5};

}  // namespace ibid::parity
