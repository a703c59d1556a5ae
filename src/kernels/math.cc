#include "kernels/math.h"

#include <bit>
#include <limits>

#include "base/check.h"
#include "kernels/cpu/row_table.h"
#include "kernels/cpu/table.h"

namespace ibid::math {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
// Adding and subtracting 1.5 * 2^52 rounds to the nearest integer, ties to even, for |x| < 2^51.
constexpr double kRounder = 6755399441055744.0;
// ln 2 and pi / 2 in parts whose product with a small integer is exact.
constexpr double kLn2High = 0x1.62e42feep-1;
constexpr double kLn2Low = 0x1.a39ef35793c76p-33;
constexpr double kInverseLn2 = 0x1.71547652b82fep+0;
constexpr double kHalfPi1 = 0x1.921fb544p+0;
constexpr double kHalfPi2 = 0x1.0b4611a6p-34;
constexpr double kHalfPi3 = 0x1.3198a2e037073p-69;
constexpr double kTwoOverPi = 0x1.45f306dc9c883p-1;

double power_of_two(int64_t n) { return std::bit_cast<double>(static_cast<uint64_t>(n + 1023) << 52); }

// exp(r) - 1 - r for |r| <= 0.36: Taylor to r^14.
double exp_tail(double r) {
  constexpr double kFactorial[] = {2.0,      6.0,       24.0,       120.0,       720.0,        5040.0,       40320.0,
                                   362880.0, 3628800.0, 39916800.0, 479001600.0, 6227020800.0, 87178291200.0};
  double p = 0.0;
  for (int i = 12; i >= 0; --i) p = p * r + 1.0 / kFactorial[i];
  return r * r * p;
}

// sin and cos of r in [-pi/4, pi/4], whose rounding error is `low`.
double sin_kernel(double r, double low) {
  const double z = r * r;
  double p = 1.0 / 355687428096000.0;  // 17!
  p = p * z - 1.0 / 1307674368000.0;
  p = p * z + 1.0 / 6227020800.0;
  p = p * z - 1.0 / 39916800.0;
  p = p * z + 1.0 / 362880.0;
  p = p * z - 1.0 / 5040.0;
  p = p * z + 1.0 / 120.0;
  p = p * z - 1.0 / 6.0;
  return r + (z * r * p + low * (1.0 - 0.5 * z));
}
double cos_kernel(double r, double low) {
  const double z = r * r;
  double p = 1.0 / 20922789888000.0;  // 16!
  p = p * z - 1.0 / 87178291200.0;
  p = p * z + 1.0 / 479001600.0;
  p = p * z - 1.0 / 3628800.0;
  p = p * z + 1.0 / 40320.0;
  p = p * z - 1.0 / 720.0;
  p = p * z + 1.0 / 24.0;
  const double half = 0.5 * z;
  const double w = 1.0 - half;
  return w + ((1.0 - w - half) + (z * z * p - r * low));
}

double sin_of_quadrant(double x, int64_t shift) {
  if (!(x - x == 0.0)) return kNan;
  const double k = (x * kTwoOverPi + kRounder) - kRounder;
  const double a = x - k * kHalfPi1;
  const double b = k * kHalfPi2;
  const double ab = a - b;
  const double ab_low = (a - ab) - b;
  const double c = k * kHalfPi3 - ab_low;
  const double r = ab - c;
  const double low = (ab - r) - c;
  const int64_t quadrant = (static_cast<int64_t>(k) + shift) & 3;
  const double value = (quadrant & 1) != 0 ? cos_kernel(r, low) : sin_kernel(r, low);
  return (quadrant & 2) != 0 ? -value : value;
}

}  // namespace

double exp(double x) {
  if (x != x) return x;
  if (x > 709.79) return kInfinity;
  if (x < -745.2) return 0.0;
  const double n = (x * kInverseLn2 + kRounder) - kRounder;
  const double high = x - n * kLn2High;
  const double low = n * kLn2Low;
  const double r = high - low;
  const double r_low = (high - r) - low;
  const double p = 1.0 + (r + (exp_tail(r) + (r_low + r * r_low)));
  const auto whole = static_cast<int64_t>(n);
  const int64_t half = whole / 2;
  return p * power_of_two(half) * power_of_two(whole - half);
}

// x = 2^k m with m in [sqrt(1/2), sqrt 2); log m = 2 atanh(s) for s = (m - 1) / (m + 1), in the arrangement
// f - f^2/2 + s (f^2/2 + R) that keeps f = m - 1 exact.
double log(double x) {
  if (!(x > 0.0)) return x == 0.0 ? -kInfinity : kNan;
  if (x == kInfinity) return x;
  int64_t k = 0;
  if (x < std::numeric_limits<double>::min()) {
    x *= 18014398509481984.0;  // 2^54
    k = -54;
  }
  auto bits = std::bit_cast<uint64_t>(x);
  k += static_cast<int64_t>(bits >> 52) - 1023;
  bits = (bits & 0x000fffffffffffffULL) | 0x3ff0000000000000ULL;
  double m = std::bit_cast<double>(bits);
  if (m > 1.4142135623730951) {
    m *= 0.5;
    ++k;
  }
  const double f = m - 1.0;
  const double s = f / (2.0 + f);
  const double z = s * s;
  double p = 2.0 / 25.0;
  for (int i = 23; i >= 3; i -= 2) p = p * z + 2.0 / i;
  const double half_square = 0.5 * f * f;
  const auto kd = static_cast<double>(k);
  return kd * kLn2High - ((half_square - (s * (half_square + z * p) + kd * kLn2Low)) - f);
}

double log1p(double x) {
  if (!(x >= -1.0)) return kNan;
  if (x == -1.0) return -kInfinity;
  if (x == kInfinity) return x;
  const double u = 1.0 + x;
  const double lost = u > 2.0 ? 1.0 - (u - x) : x - (u - 1.0);
  return log(u) + lost / u;
}

double sin(double x) { return sin_of_quadrant(x, 0); }
double cos(double x) { return sin_of_quadrant(x, 1); }
double pow(double x, double y) { return y == 0.0 ? 1.0 : exp(y * log(x)); }

// Abramowitz and Stegun 7.1.6 (all terms positive) below 3, the continued fraction 7.1.14 of erfc above.
double erf(double x) {
  if (x != x) return x;
  constexpr double kTwoOverRootPi = 1.1283791670955126;
  const double a = x < 0.0 ? -x : x;
  double value = 1.0;
  if (a < 3.0) {
    double term = a;
    double sum = a;
    for (int n = 1; n < 64; ++n) {
      term = term * (2.0 * a * a) / (2 * n + 1);
      sum += term;
    }
    value = kTwoOverRootPi * exp(-a * a) * sum;
  } else if (a < 6.0) {
    double fraction = a;
    for (int n = 60; n >= 1; --n) fraction = a + 0.5 * n / fraction;
    value = 1.0 - 0.5 * kTwoOverRootPi * exp(-a * a) / fraction;
  }
  return x < 0.0 ? -value : value;
}

double tanh(double x) {
  if (x != x) return x;
  const double a = x < 0.0 ? -x : x;
  double value = 1.0;
  if (a < 0.17) {
    const double r = -2.0 * a;
    const double e = r + exp_tail(r);  // expm1(-2a)
    value = -e / (2.0 + e);
  } else if (a < 20.0) {
    const double e = exp(-2.0 * a);
    value = (1.0 - e) / (1.0 + e);
  }
  return x < 0.0 ? -value : value;
}

float exp(float x) {
  float y;
  cpu::table().row->exp(&y, &x, 1);
  return y;
}
float tanh(float x) {
  float y;
  cpu::table().row->tanh(&y, &x, 1);
  return y;
}
float silu(float x) {
  float y;
  cpu::table().row->silu(&y, &x, 1);
  return y;
}
float gelu(float x) {
  float y;
  cpu::table().row->gelu(&y, &x, 1);
  return y;
}
float gelu_tanh(float x) {
  float y;
  cpu::table().row->gelu_tanh(&y, &x, 1);
  return y;
}
void exp(std::span<float> out, std::span<const float> x) {
  CHECK(out.size() == x.size());
  cpu::table().row->exp(out.data(), x.data(), static_cast<int64_t>(x.size()));
}

float fma(float a, float b, float c) {
  const double product = static_cast<double>(a) * b;
  const double addend = c;
  const double sum = product + addend;
  const double part = sum - product;
  const double error = (product - (sum - part)) + (addend - part);
  auto bits = std::bit_cast<uint64_t>(sum);
  // Inexact and even: step towards the side that the error shows, which sets the last bit.
  if (error != 0.0 && error == error && (bits & 1) == 0) {
    bits += ((error > 0.0) == (sum > 0.0)) ? 1 : static_cast<uint64_t>(-1);
  }
  return static_cast<float>(std::bit_cast<double>(bits));
}

}  // namespace ibid::math
