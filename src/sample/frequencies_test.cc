// Draws at full vocabulary size follow their distribution: 10^6 of them, enough to catch one wrong winner in a
// thousand; IBID_DRAWS=10000000 makes so many.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdlib>
#include <thread>
#include <vector>

#include "sample/stages.h"

namespace ibid {
namespace {

constexpr int kVocab = 49152, kHeavy = 1000, kTailBins = 100;
constexpr double kTailMass = 1e-4;

std::vector<float> logits() {
  std::vector<float> row(kVocab,
                         static_cast<float>(std::log(kTailMass / (1 - kTailMass) * kHeavy / (kVocab - kHeavy))));
  for (int i = 0; i < kHeavy; ++i) row[static_cast<size_t>(i * 49)] = 0.0f;  // spread over the vocabulary
  return row;
}

struct Counts {
  std::array<int64_t, kHeavy + kTailBins> bin{};
  void add(int32_t token) {
    bool heavy = token % 49 == 0 && token / 49 < kHeavy;
    ++bin[static_cast<size_t>(heavy ? token / 49 : kHeavy + token % kTailBins)];
  }
  double chi_square(int64_t n) const {
    std::array<double, kTailBins> tail_tokens{};
    for (int t = 0; t < kVocab; ++t) {
      if (!(t % 49 == 0 && t / 49 < kHeavy)) ++tail_tokens[static_cast<size_t>(t % kTailBins)];
    }
    double sum = 0;
    for (int i = 0; i < kHeavy + kTailBins; ++i) {
      double p = i < kHeavy ? (1 - kTailMass) / kHeavy
                            : kTailMass * tail_tokens[static_cast<size_t>(i - kHeavy)] / (kVocab - kHeavy);
      double expected = p * static_cast<double>(n), d = static_cast<double>(bin[static_cast<size_t>(i)]) - expected;
      sum += d * d / expected;
    }
    return sum;
  }
};

// Draws of seeds [from, to); every `every`-th winner is replaced by an arbitrary token, as a faulty race would.
Counts draw_many(uint64_t from, uint64_t to, uint64_t every = 0) {
  std::vector<float> row = logits();
  SamplerScratch scratch;
  stages::Support support;
  support.collect(row, scratch);
  Counts counts;
  for (uint64_t seed = from; seed < to; ++seed) {
    int32_t token = raw(stages::draw(support, seed, static_cast<int32_t>(seed % 8192), scratch));
    if (every > 0 && seed % every == 0) token = static_cast<int32_t>((seed * 2654435761u) % kVocab);
    counts.add(token);
  }
  return counts;
}

// 1,099 degrees of freedom: mean 1,099, deviation 47; this is beyond p = 10^-5.
constexpr double kCritical = 1310;

TEST(Frequencies, TwentyThousandDrawsFollowTheDistribution) {
  constexpr uint64_t kDraws = 20000;
  EXPECT_LT(draw_many(1, kDraws + 1).chi_square(kDraws), 1600);  // bins are thin here, so the bound is loose
}

TEST(SlowFrequencies, AMillionDrawsFollowTheDistributionAndOneBadWinnerInAThousandIsCaught) {
  const char* given = std::getenv("IBID_DRAWS");
  const uint64_t n = given != nullptr ? std::strtoull(given, nullptr, 10) : 1'000'000;
  std::array<Counts, 2> half;
  std::thread other([&] { half[1] = draw_many(n / 2, n); });
  half[0] = draw_many(0, n / 2);
  other.join();
  Counts all;
  for (size_t i = 0; i < all.bin.size(); ++i) all.bin[i] = half[0].bin[i] + half[1].bin[i];
  EXPECT_LT(all.chi_square(static_cast<int64_t>(n)), kCritical);

  constexpr uint64_t kFaulty = 200'000;  // far fewer are enough for the fault
  EXPECT_GT(draw_many(0, kFaulty, 1000).chi_square(kFaulty), kCritical);
}

}  // namespace
}  // namespace ibid
