// Exact fractions, and laws of few tokens in sixths: for what must hold whatever the numbers.
#pragma once

#include <cstdint>
#include <numeric>
#include <vector>

#include "base/check.h"

namespace ibid::testing {

// n / d, exactly.
struct Fraction {
  int64_t n = 0, d = 1;
  Fraction() = default;
  explicit Fraction(int64_t whole) : n(whole) {}
  Fraction(int64_t over, int64_t under) {
    const int64_t g = std::gcd(over, under);
    n = over / g, d = under / g;
  }
  Fraction operator+(const Fraction& o) const { return sum(o, 1); }
  Fraction operator-(const Fraction& o) const { return sum(o, -1); }
  Fraction operator*(const Fraction& o) const {
    const Fraction a(n, o.d), b(o.n, d);
    return {times(a.n, b.n), times(a.d, b.d)};
  }
  Fraction operator/(const Fraction& o) const { return *this * Fraction(o.d, o.n); }
  bool operator>(const Fraction& o) const { return sum(o, -1).n > 0; }
  bool operator==(const Fraction& o) const { return n == o.n && d == o.d; }

 private:
  static int64_t times(int64_t a, int64_t b) {
    int64_t out = 0;
    CHECK(!__builtin_mul_overflow(a, b, &out), "a fraction too long");
    return out;
  }
  Fraction sum(const Fraction& o, int64_t sign) const {
    const int64_t g = std::gcd(d, o.d);
    int64_t out = 0;
    CHECK(!__builtin_add_overflow(times(n, o.d / g), sign * times(o.n, d / g), &out), "a fraction too long");
    return {out, times(d / g, o.d)};
  }
};

using Law = std::vector<Fraction>;

// All laws of n tokens in sixths.
inline std::vector<Law> laws(size_t n) {
  constexpr int64_t kParts = 6;
  std::vector<Law> out;
  Law law;
  const auto go = [&](auto&& self, int64_t left) -> void {
    if (law.size() + 1 == n) {
      law.emplace_back(left, kParts);
      out.push_back(law);
      law.pop_back();
      return;
    }
    for (int64_t part = 0; part <= left; ++part) {
      law.emplace_back(part, kParts);
      self(self, left - part);
      law.pop_back();
    }
  };
  go(go, kParts);
  return out;
}

}  // namespace ibid::testing
