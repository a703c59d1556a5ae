// The errors that kernels/math.h states, against the C library's double (long double for the double functions), and the
// same bits on every instruction set. Random arguments with fixed seeds; the bounds are what was measured, rounded up.
#include "kernels/math.h"

#include <functional>
#include <limits>

#include "kernels/cpu/row_table.h"
#include "kernels/cpu/table.h"
#include "parity/harness.h"

namespace ibid::parity {
namespace {

// |got - want| in units of the last place of want (of the smallest normal number below it).
double ulps(float got, double want) {
  const double size = std::max(std::fabs(want), double{std::numeric_limits<float>::min()});
  return std::fabs(got - want) / std::ldexp(1.0, std::ilogb(size) - 23);
}
double ulps(double got, long double want, long double floor = std::numeric_limits<double>::min()) {
  const long double size = std::max(std::fabs(want), floor);
  return static_cast<double>(std::fabs(got - want) / std::ldexp(1.0L, std::ilogb(size) - 52));
}

template <typename T>
std::vector<T> draw(int n, double low, double high, uint64_t seed = 1) {
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<double> value(low, high);
  std::vector<T> x(static_cast<size_t>(n));
  for (T& v : x) v = static_cast<T>(value(random));
  return x;
}

using Row = void (*cpu::RowTable::*)(float*, const float*, int64_t);
void check_lanes(Row row, float (*scalar)(float), double (*want)(double), double low, double high, double bound) {
  const std::vector<float> x = draw<float>(60001, low, high);
  std::vector<uint32_t> first;
  for_each_isa([&](Isa) {
    std::vector<float> y(x.size());
    (cpu::table().row->*row)(y.data(), x.data(), static_cast<int64_t>(x.size()));
    double worst = 0.0;
    for (size_t i = 0; i < x.size(); ++i) worst = std::max(worst, ulps(y[i], want(x[i])));
    EXPECT_LE(worst, bound);
    EXPECT_GT(worst, 0.4) << "a bound that is far from what happens says nothing";
    for (size_t i = 0; i < x.size(); i += 997)
      EXPECT_EQ(std::bit_cast<uint32_t>(scalar(x[i])), std::bit_cast<uint32_t>(y[i]));
    std::vector<uint32_t> bits(y.size());
    std::memcpy(bits.data(), y.data(), y.size() * sizeof(float));
    if (first.empty()) first = bits;
    EXPECT_EQ(difference(first, bits), "");
  });
}

double silu_want(double x) { return x / (1.0 + std::exp(-x)); }
double gelu_want(double x) { return 0.5 * x * (1.0 + std::tanh(std::sqrt(2.0 / M_PI) * (x + 0.044715 * x * x * x))); }
double exp_want(double x) { return std::exp(x); }
double tanh_want(double x) { return std::tanh(x); }

TEST(Math, ExpIsWithinItsUlps) {
  check_lanes(&cpu::RowTable::exp, math::exp, exp_want, -87.0, 88.0, 1.0);
  check_lanes(&cpu::RowTable::exp, math::exp, exp_want, -1.0, 1.0, 1.0);
}
TEST(Math, ExpIsWithinItsUlpsWhereSomeLanesStopBeingNormal) {
  check_lanes(&cpu::RowTable::exp, math::exp, exp_want, -88.0, -86.5, 1.0);
  check_lanes(&cpu::RowTable::exp, math::exp, exp_want, -87.4, -84.0, 1.0);
  check_lanes(&cpu::RowTable::exp, math::exp, exp_want, 86.0, 88.7, 1.0);
}
TEST(Math, TanhIsWithinItsUlps) {
  check_lanes(&cpu::RowTable::tanh, math::tanh, tanh_want, -10.0, 10.0, 3.0);
  check_lanes(&cpu::RowTable::tanh, math::tanh, tanh_want, -0.01, 0.01, 3.0);
}
TEST(Math, SiluIsWithinItsUlps) { check_lanes(&cpu::RowTable::silu, math::silu, silu_want, -80.0, 80.0, 3.0); }
TEST(Math, GeluIsWithinItsUlps) { check_lanes(&cpu::RowTable::gelu_tanh, math::gelu_tanh, gelu_want, -3.0, 6.0, 20.0); }

TEST(Math, ExactGeluIsWithinItsUlps) {
  const auto want = [](double x) { return 0.5 * x * std::erfc(-x / M_SQRT2); };
  check_lanes(&cpu::RowTable::gelu, math::gelu, want, -6.0, 8.0, 64.0);
}

TEST(Math, EdgesOfTheLanes) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  for_each_isa([&](Isa) {
    EXPECT_EQ(math::exp(0.0f), 1.0f);
    EXPECT_EQ(math::exp(-kInf), 0.0f);
    EXPECT_EQ(math::exp(-200.0f), 0.0f);
    EXPECT_EQ(math::exp(kInf), kInf);
    EXPECT_EQ(math::exp(88.8f), kInf);
    EXPECT_NEAR(math::exp(-100.0f), 3.783506e-44f, 2e-45f);
    EXPECT_EQ(math::exp(-103.97f), std::numeric_limits<float>::denorm_min());  // the last before 0
    EXPECT_EQ(math::exp(-104.0f), 0.0f);
    EXPECT_TRUE(std::isnan(math::exp(std::nanf(""))));
    EXPECT_EQ(math::tanh(0.0f), 0.0f);
    EXPECT_EQ(math::tanh(40.0f), 1.0f);
    EXPECT_EQ(math::tanh(-kInf), -1.0f);
    EXPECT_TRUE(std::isnan(math::tanh(std::nanf(""))));
    EXPECT_EQ(math::silu(100.0f), 100.0f);
    EXPECT_EQ(math::silu(-200.0f), 0.0f);
  });
}

void check_double(double (*f)(double), long double (*want)(long double), double low, double high, double bound,
                  long double floor = std::numeric_limits<double>::min()) {
  double worst = 0.0;
  std::vector<double> got = draw<double>(40000, low, high);
  for (double& x : got) {
    const long double exact = want(x);
    x = f(x);
    worst = std::max(worst, ulps(x, exact, floor));
  }
  note_bits({reinterpret_cast<const char*>(got.data()), got.size() * sizeof(double)});
  EXPECT_LE(worst, bound) << "between " << low << " and " << high;
}
long double expl_(long double x) { return std::exp(x); }
long double logl_(long double x) { return std::log(x); }
long double log1pl_(long double x) { return std::log1p(x); }
long double sinl_(long double x) { return std::sin(x); }
long double cosl_(long double x) { return std::cos(x); }
long double erfl_(long double x) { return std::erf(x); }
long double tanhl_(long double x) { return std::tanh(x); }

TEST(Math, DoubleExpAndLogs) {
  check_double(math::exp, expl_, -700.0, 700.0, 1.0);
  check_double(math::exp, expl_, -1.0, 1.0, 1.0);
  check_double(math::log, logl_, 1e-300, 1e300, 1.0);
  check_double(math::log, logl_, 0.5, 2.0, 1.0);
  check_double(math::log1p, log1pl_, -1.0, 1.0, 2.0);
  check_double(math::log1p, log1pl_, -1e-9, 1e-9, 2.0);
  check_double(math::log1p, log1pl_, 1.0, 1e9, 2.0);
  EXPECT_EQ(math::exp(0.0), 1.0);
  EXPECT_EQ(math::exp(-1e9), 0.0);
  EXPECT_EQ(math::exp(1e9), INFINITY);
  EXPECT_EQ(math::log(1.0), 0.0);
  EXPECT_EQ(math::log(0.0), -INFINITY);
  EXPECT_TRUE(std::isnan(math::log(-1.0)));
  EXPECT_LE(ulps(math::log(5e-324), logl_(static_cast<long double>(5e-324))), 1.0);
  EXPECT_EQ(math::log1p(-1.0), -INFINITY);
  EXPECT_EQ(math::log1p(0.0), 0.0);
}

TEST(Math, DoubleSinAndCosAtPositionsOfALongContext) {
  const long double floor = 0x1p-20L;
  check_double(math::sin, sinl_, -10.0, 10.0, 1.0, floor);
  check_double(math::cos, cosl_, -10.0, 10.0, 1.0, floor);
  check_double(math::sin, sinl_, 0.0, 1.6e6, 1.0, floor);
  check_double(math::cos, cosl_, 0.0, 1.6e6, 1.0, floor);
  EXPECT_EQ(math::sin(0.0), 0.0);
  EXPECT_EQ(math::cos(0.0), 1.0);
  EXPECT_TRUE(std::isnan(math::sin(INFINITY)));
}

TEST(Math, DoublePowGivesRopeFrequencies) {
  for (double base : {10000.0, 100000.0, 500000.0, 1e6}) {
    for (int i = 0; i < 64; ++i) {
      const double y = -i / 64.0, power = math::pow(base, y);
      note_bits({reinterpret_cast<const char*>(&power), sizeof power});
      EXPECT_LE(ulps(power, std::pow(static_cast<long double>(base), static_cast<long double>(y))),
                2.0 + 1.5 * std::fabs(y * std::log(base)));
    }
  }
  EXPECT_EQ(math::pow(3.0, 0.0), 1.0);
}

TEST(Math, DoubleErfAndTanh) {
  check_double(math::erf, erfl_, -6.0, 6.0, 16.0);
  check_double(math::erf, erfl_, -0.1, 0.1, 4.0);
  check_double(math::tanh, tanhl_, -20.0, 20.0, 4.0);
  check_double(math::tanh, tanhl_, -0.2, 0.2, 4.0);
}

TEST(Math, LogsOfAFloatAreRoundedOnce) {
  double worst = 0.0;
  std::vector<float> got;
  for (float x : draw<float>(20000, 0.0, 50.0)) {
    got.push_back(math::log(x));
    worst = std::max(worst, ulps(got.back(), std::log(double{x})));
    got.push_back(math::log1p(x));
    worst = std::max(worst, ulps(got.back(), std::log1p(double{x})));
  }
  note_bits(got);
  EXPECT_LE(worst, 0.5001);
}

TEST(Math, FmaRoundsOnce) {
  std::mt19937_64 random(3);
  auto value = [&] {
    const int exponent = static_cast<int>(random() % 60) - 30;
    return std::ldexp(static_cast<float>(static_cast<int32_t>(random())), exponent - 31);
  };
  std::vector<float> got;
  for (int i = 0; i < 200000; ++i) {
    const float a = value(), b = value(), c = value();
    got.push_back(math::fma(a, b, c));
    ASSERT_EQ(got.back(), std::fma(a, b, c)) << std::hexfloat << a << ' ' << b << ' ' << c;
  }
  note_bits(got);
  // A sum that double alone would round twice.
  EXPECT_EQ(math::fma(0x1.000002p0f, 0x1p-30f, 0x1.000001p0f - 0x1p-24f + 0x1p-24f),
            std::fma(0x1.000002p0f, 0x1p-30f, 1.0f));
  EXPECT_EQ(math::fma(0x1p-149f, 0.5f, 0.0f), std::fma(0x1p-149f, 0.5f, 0.0f));
  EXPECT_TRUE(std::isnan(math::fma(INFINITY, 1.0f, -INFINITY)));
}

}  // namespace
}  // namespace ibid::parity
