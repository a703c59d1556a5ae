// docs/design.md section 5, law 7: the bf16 dot is fma(x0, w0, fma(x1, w1, acc)), subnormals zero, on every instruction
// set.
#include <gtest/gtest.h>

#include <limits>

#include "parity/linear_cases.h"

namespace ibid {
namespace {

// The law in plain arithmetic. Double precision holds the product exactly; long double (64 bits) the sum's rounding
// well enough to see whether it is tiny, which is decided after rounding to 24 bits with an unbounded exponent.
float flushed(float x) { return std::fabs(x) < std::numeric_limits<float>::min() ? std::copysign(0.0f, x) : x; }
float fma_flushed(float a, float b, float c) {
  a = flushed(a), b = flushed(b), c = flushed(c);
  const float scaled = std::fma(std::ldexp(a, 60), std::ldexp(b, 60), std::ldexp(c, 120));  // no subnormal in sight
  if (std::fabs(c) < 1e-30f && std::fabs(double{a} * double{b}) < 1e-30 && std::fabs(scaled) < 0x1p-6f) {
    return std::copysign(0.0f, scaled);
  }
  return std::fma(a, b, c);
}

struct Range {
  const char* name;
  uint16_t and_mask, or_mask;  // of random bits
};

// Pairs of pairs: the first sets the accumulator, the second adds to it. N x T x 2 dots a round.
void expect_same_dots(const Range& range, int n_rounds, unsigned seed) {
  constexpr int64_t N = 512, T = 64, K = 4;
  std::mt19937 random(seed);
  ThreadTeam team(1);
  Stream s(team);
  auto number = [&] {
    const auto bits = static_cast<uint16_t>((random() & range.and_mask) | range.or_mask);
    return (bits & 0x7f80) == 0x7f80 ? static_cast<uint16_t>(bits & 0xbfff) : bits;  // no infinities, no NaN
  };
  for (int round = 0; round < n_rounds; ++round) {
    std::vector<uint16_t> w(N * K);
    std::vector<float> x(T * K);
    for (uint16_t& v : w) v = number();
    for (float& v : x) v = bf16_to_float(number());
    // Sums near the smallest normal number, where flushing is decided.
    const Weight weight = prepare_weight(s, TensorView(w.data(), DType::kBF16, {N, K}));
    const TensorView x_view(x.data(), DType::kF32, {T, K});
    GuardedOutput want(T, N);
    for (int64_t t = 0; t < T; ++t) {
      for (int64_t n = 0; n < N; ++n) {
        const float* xr = &x[static_cast<size_t>(t * K)];
        const uint16_t* wr = &w[static_cast<size_t>(n * K)];
        float acc = 0;
        for (int k = 0; k < K; k += 2) {
          acc = fma_flushed(xr[k + 1], bf16_to_float(wr[k + 1]), acc);
          acc = fma_flushed(xr[k], bf16_to_float(wr[k]), acc);
        }
        want.view.row_as<float>(t)[n] = acc;
      }
    }
    for (Isa isa : supported_isas()) {
      ASSERT_TRUE(select_isa(isa).ok());
      GuardedOutput out(T, N);
      run_linear(s, out.view, x_view, weight);
      out.note();
      for (int64_t t = 0; t < T; ++t) {
        for (int64_t n = 0; n < N; ++n) {
          const float a = out.view.row_as<float>(t)[n], b = want.view.row_as<float>(t)[n];
          if (std::isnan(a) && std::isnan(b)) continue;  // infinity minus infinity
          ASSERT_EQ(std::bit_cast<uint32_t>(a), std::bit_cast<uint32_t>(b))
              << range.name << ", " << isa_name(isa) << ", t " << t << " n " << n << std::hexfloat << ": " << a << " "
              << b;
        }
      }
    }
  }
  ASSERT_TRUE(select_isa(supported_isas().back()).ok());
}

constexpr Range kRanges[] = {
    {"any finite numbers", 0xffff, 0},
    {"numbers near 1, so that sums cancel", 0x80ff, 0x3f80},
    {"products near the smallest normal number", 0x81ff, 0x1f00},
    {"subnormals among small numbers", 0x83ff, 0},
    {"large numbers, so that sums overflow", 0x80ff, 0x5f00},
};

TEST(Bf16Dot, IsTheLawOnEveryIsa) {
  for (const Range& range : kRanges) expect_same_dots(range, 3, 17);
}

// 2^-126 - m 2^-151: tiny is what is below 2^-126 when rounded to 24 bits with an unbounded exponent (m > 1), although
// the subnormal grid would carry it up to 2^-126 (m <= 2). Random numbers do not come here.
TEST(Bf16Dot, DecidesWhatIsTinyAfterRoundingButNotToTheSubnormalGrid) {
  ThreadTeam team(1);
  Stream s(team);
  constexpr float kLess[] = {0x1p-7f, 0.5f, 0x1.fep-1f, 1.0f, 0x1.02p0f, 1.5f, 0x1.fep0f, 2.0f, 0x1.02p1f};
  constexpr auto N = static_cast<int64_t>(std::size(kLess));
  std::vector<uint16_t> weights;
  for (float m : kLess) {
    for (float w : {0x1p-63f, 0.0f, m * 0x1p-75f, 0.0f}) weights.push_back(float_to_bf16(w));
  }
  const Weight w = prepare_weight(s, TensorView(weights.data(), DType::kBF16, {N, 4}));
  for (Isa isa : supported_isas()) {
    ASSERT_TRUE(select_isa(isa).ok());
    for (float sign : {1.0f, -1.0f}) {
      std::vector<float> x = {sign * 0x1p-63f, 0.0f, -sign * 0x1p-76f, 0.0f};
      GuardedOutput out(1, N);
      run_linear(s, out.view, TensorView(x.data(), DType::kF32, {1, 4}), w);
      out.note();
      for (int64_t n = 0; n < N; ++n) {
        const float want = std::copysign(kLess[n] <= 1.0f ? 0x1p-126f : 0.0f, sign);
        EXPECT_EQ(std::bit_cast<uint32_t>(out.view.row_as<float>(0)[n]), std::bit_cast<uint32_t>(want))
            << isa_name(isa) << ", m " << kLess[n];
      }
    }
  }
  ASSERT_TRUE(select_isa(supported_isas().back()).ok());
}

// 5 ranges x 200 rounds x 65,536 dots.
TEST(SlowBf16Dot, IsTheLawForSixtyFiveMillionPairs) {
  for (const Range& range : kRanges) expect_same_dots(range, 200, 99);
}

}  // namespace
}  // namespace ibid
