// Each stage against a brute-force implementation over random and tied logits.
#include "sample/stages.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <random>
#include <set>

#include "kernels/math.h"
#include "sample/philox.h"
#include "sample/testing/random_rows.h"

namespace ibid {
namespace {

constexpr float kMasked = testing::kMasked;
using testing::random_row, testing::Row;
using Ids = std::vector<int32_t>;

// All finite ids sorted by logit, then id; the plainest way.
Ids sorted_ids(const Row& row) {
  Ids ids;
  for (size_t i = 0; i < row.size(); ++i) {
    if (row[i] != kMasked) ids.push_back(static_cast<int32_t>(i));
  }
  std::stable_sort(ids.begin(), ids.end(),
                   [&](int32_t a, int32_t b) { return row[static_cast<size_t>(a)] > row[static_cast<size_t>(b)]; });
  return ids;
}
double weight(const Row& row, const Ids& sorted, int32_t id) {
  return static_cast<double>(math::exp(row[static_cast<size_t>(id)] - row[static_cast<size_t>(sorted[0])]));
}
double total(const Row& row, const Ids& sorted) {
  Ids by_id = sorted;
  std::sort(by_id.begin(), by_id.end());
  double sum = 0;
  for (int32_t id : by_id) sum += weight(row, sorted, id);
  return sum;
}
std::set<int32_t> kept(stages::Support& s) {
  std::set<int32_t> out;
  for (const Candidate& c : s.all()) out.insert(c.id);
  return out;
}
std::set<int32_t> first(const Ids& ids, size_t n) { return {ids.begin(), ids.begin() + static_cast<long>(n)}; }

void for_random_rows(int n,
                     const std::function<void(const Row&, stages::Support&, SamplerScratch&, std::mt19937&)>& body) {
  std::mt19937 rng(1);
  SamplerScratch scratch;
  for (int i = 0; i < n; ++i) {
    Row row = random_row(rng);
    stages::Support support;
    if (!support.collect(row, scratch)) continue;
    body(row, support, scratch, rng);
    if (::testing::Test::HasFailure()) FAIL() << "row " << i;
  }
}

TEST(Stages, TopKKeepsTheFirstKOfTheSortedRow) {
  for_random_rows(500, [](const Row& row, stages::Support& s, SamplerScratch&, std::mt19937& rng) {
    Ids sorted = sorted_ids(row);
    auto k = 1 + static_cast<int32_t>(rng() % 700);
    stages::top_k(s, k);
    EXPECT_EQ(kept(s), first(sorted, std::min(sorted.size(), static_cast<size_t>(k))));
  });
}

TEST(Stages, TopPKeepsTheSmallestPrefixWithTheMass) {
  for_random_rows(500, [](const Row& row, stages::Support& s, SamplerScratch&, std::mt19937& rng) {
    Ids sorted = sorted_ids(row);
    float p = static_cast<float>(rng() % 1000 + 1) / 1001.0f;
    double wanted = static_cast<double>(p) * total(row, sorted), sum = 0;
    size_t n = 0;
    while (n < sorted.size() && (n == 0 || sum < wanted)) sum += weight(row, sorted, sorted[n++]);
    stages::top_p(s, p);
    EXPECT_EQ(kept(s), first(sorted, n));
  });
}

TEST(Stages, MinPKeepsWhatIsLikelyEnoughBesideTheBest) {
  for_random_rows(500, [](const Row& row, stages::Support& s, SamplerScratch&, std::mt19937& rng) {
    Ids sorted = sorted_ids(row);
    float p = static_cast<float>(rng() % 1000) / 1000.0f;
    std::set<int32_t> expected;
    for (int32_t id : sorted) {
      if (weight(row, sorted, id) >= static_cast<double>(p)) expected.insert(id);
    }
    stages::min_p(s, p);
    EXPECT_EQ(kept(s), expected);
  });
}

TEST(Stages, TypicalKeepsTheLeastSurprisinglySurprising) {
  for_random_rows(200, [](const Row& row, stages::Support& s, SamplerScratch& scratch, std::mt19937& rng) {
    Ids sorted = sorted_ids(row);
    float p = static_cast<float>(rng() % 999 + 1) / 1000.0f;
    double z = total(row, sorted), log_z = math::log(z), entropy = 0;
    auto surprise = [&](int32_t id) {
      return log_z - static_cast<double>(row[static_cast<size_t>(id)] - row[static_cast<size_t>(sorted[0])]);
    };
    for (int32_t id : sorted) entropy += weight(row, sorted, id) / z * surprise(id);
    Ids order = sorted;
    std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
      return std::fabs(surprise(a) - entropy) < std::fabs(surprise(b) - entropy);
    });
    size_t n = 0;
    for (double sum = 0; n < order.size() && (n == 0 || sum < static_cast<double>(p) * z); ++n)
      sum += weight(row, sorted, order[n]);
    stages::typical(s, p, scratch);
    EXPECT_EQ(kept(s), first(order, n));
  });
}

TEST(Stages, TopNSigmaCutsAtStandardDeviationsBelowTheBest) {
  for_random_rows(300, [](const Row& row, stages::Support& s, SamplerScratch&, std::mt19937& rng) {
    float n = static_cast<float>(rng() % 40 + 1) / 10.0f;
    double mean = 0, squares = 0, count = 0;
    for (float z : row) {
      if (z != kMasked) mean += static_cast<double>(z), ++count;
    }
    mean /= count;
    for (float z : row) {
      if (z != kMasked) squares += (static_cast<double>(z) - mean) * (static_cast<double>(z) - mean);
    }
    double lowest = static_cast<double>(*std::max_element(row.begin(), row.end())) -
                    static_cast<double>(n) * std::sqrt(squares / count);
    std::set<int32_t> expected;
    for (size_t i = 0; i < row.size(); ++i) {
      if (row[i] != kMasked && static_cast<double>(row[i]) >= lowest) expected.insert(static_cast<int32_t>(i));
    }
    stages::top_n_sigma(s, n);
    EXPECT_EQ(kept(s), expected);
  });
}

TEST(Stages, XtcDropsAllButTheLeastLikelyOfTheTopChoices) {
  for_random_rows(500, [](const Row& row, stages::Support& s, SamplerScratch&, std::mt19937& rng) {
    Ids sorted = sorted_ids(row);
    float threshold = static_cast<float>(rng() % 400) / 1000.0f, probability = 0.5f;
    uint64_t seed = rng();
    double z = total(row, sorted);
    size_t n_top = 0;
    const auto of_next = [&] { return weight(row, sorted, sorted[n_top]); };
    while (n_top < sorted.size() && of_next() > 0 && of_next() >= static_cast<double>(threshold) * z) ++n_top;
    bool acts = open_unit(noise_words(seed, 9, NoisePurpose::kXtc, 0)[0]) < 0.5 && n_top >= 2;
    std::set<int32_t> expected(sorted.begin() + (acts ? static_cast<long>(n_top) - 1 : 0), sorted.end());
    stages::xtc(s, probability, threshold, seed, 9);
    EXPECT_EQ(kept(s), expected);
  });
}

TEST(Stages, XtcLeavesSomethingThatMayComeAlsoAtAThresholdOfNothing) {
  SamplerScratch scratch;
  stages::Support s;
  const Row row = {0, -200, -1, -300, -2};
  ASSERT_TRUE(s.collect(row, scratch));
  stages::xtc(s, 1, 0, 1, 9);
  EXPECT_EQ(kept(s), (std::set<int32_t>{4, 1, 3}));
  EXPECT_GT(s.total_weight(), 0);
}

TEST(Stages, MirostatTwoKeepsTokensUpToItsSurprise) {
  for_random_rows(300, [](const Row& row, stages::Support& s, SamplerScratch&, std::mt19937& rng) {
    Ids sorted = sorted_ids(row);
    float mu = static_cast<float>(rng() % 1500) / 100.0f;
    double lowest = total(row, sorted) * math::exp(-static_cast<double>(mu) * 0.693147180559945309417);
    std::set<int32_t> expected = {sorted[0]};
    for (int32_t id : sorted) {
      if (weight(row, sorted, id) >= lowest) expected.insert(id);
    }
    stages::mirostat2(s, mu);
    EXPECT_EQ(kept(s), expected);
  });
}

// Algorithm 1 of the paper as it stands there, by probabilities and powers.
double zipf_k(const Row& row, const Ids& sorted, double mu) {
  double sum_tb = 0, sum_tt = 0;
  for (size_t i = 0; i < 99 && i + 1 < sorted.size(); ++i) {
    double t = std::log((static_cast<double>(i) + 2) / (static_cast<double>(i) + 1));
    double p = static_cast<double>(row[static_cast<size_t>(sorted[i])]);
    double q = static_cast<double>(row[static_cast<size_t>(sorted[i + 1])]);
    sum_tb += t * std::log(std::exp(p) / std::exp(q));
    sum_tt += t * t;
  }
  double s = sum_tb / sum_tt, e = s - 1;
  return std::pow(e * std::pow(2, mu) / (1 - std::pow(static_cast<double>(row.size()), -e)), 1 / s);
}

TEST(Stages, MirostatOneKeepsAsManyTokensAsZipfsLawGivesForItsSurprise) {
  int n_cut = 0;
  for_random_rows(600, [&](const Row& row, stages::Support& s, SamplerScratch&, std::mt19937& rng) {
    Ids sorted = sorted_ids(row);
    float mu = static_cast<float>(rng() % 1500) / 100.0f;
    stages::mirostat1(s, mu, static_cast<int32_t>(row.size()));
    double k = sorted.size() < 2 ? 1 : zipf_k(row, sorted, static_cast<double>(mu));
    if (k > 1 && std::fabs(k - std::round(k)) < 1e-9 * k) return;  // either side of an integer is right
    size_t wanted = k < 1 ? 1 : static_cast<size_t>(std::min(k, static_cast<double>(sorted.size())));
    n_cut += wanted > 1 && wanted < sorted.size();
    EXPECT_EQ(kept(s), first(sorted, wanted)) << k;
  });
  EXPECT_GT(n_cut, 100);
}

TEST(Stages, MirostatOneHasALimitWhereItsFormulaHasNone) {
  SamplerScratch scratch;
  const auto n_kept = [&](Row row, float mu) {
    stages::Support s;
    EXPECT_TRUE(s.collect(row, scratch));
    stages::mirostat1(s, mu, static_cast<int32_t>(row.size()));
    return s.size();
  };
  EXPECT_EQ(n_kept(Row(1, 0.0f), 5), 1);
  EXPECT_EQ(n_kept(Row(8, 0.0f), 2), 1);  // all alike: 2^2 is less than the 7 beside one
  EXPECT_EQ(n_kept(Row(8, 0.0f), 3), 8);
  // Zipf's law with s = 1: k = 2^mu / ln V.
  Row zipf;
  for (int i = 1; i <= 1000; ++i) zipf.push_back(-std::log(static_cast<float>(i)));
  EXPECT_EQ(n_kept(zipf, 8), 37);  // 256 / 6.908 = 37.06
  EXPECT_EQ(n_kept({1e30f, 0, -1e30f}, 10), 1);
}

TEST(Stages, StagesInARowEqualTheSameCutsByHand) {
  for_random_rows(300, [](const Row& row, stages::Support& s, SamplerScratch&, std::mt19937&) {
    stages::top_k(s, 20);
    stages::top_p(s, 0.8f);
    stages::min_p(s, 0.05f);
    Ids sorted = sorted_ids(row);
    sorted.resize(std::min<size_t>(sorted.size(), 20));
    double z = 0, sum = 0;
    for (int32_t id : sorted) z += weight(row, sorted, id);
    Ids expected;
    for (int32_t id : sorted) {
      if (!expected.empty() && sum >= static_cast<double>(0.8f) * z) break;
      sum += weight(row, sorted, id);
      expected.push_back(id);
    }
    std::erase_if(expected, [&](int32_t id) { return weight(row, sorted, id) < static_cast<double>(0.05f); });
    EXPECT_EQ(kept(s), (std::set<int32_t>(expected.begin(), expected.end())));
  });
}

TEST(Stages, TheRaceIsWonByTheSmallestTimeOverAllTokens) {
  for_random_rows(300, [](const Row& row, stages::Support& s, SamplerScratch& scratch, std::mt19937& rng) {
    Ids sorted = sorted_ids(row);
    uint64_t seed = (static_cast<uint64_t>(rng()) << 32) | rng();
    auto position = static_cast<int32_t>(rng() % 5000);
    double best = std::numeric_limits<double>::infinity();
    int32_t winner = -1;
    std::sort(sorted.begin(), sorted.end());
    Ids by_logit = sorted_ids(row);
    for (int32_t id : sorted) {
      auto u = static_cast<uint32_t>(id);
      double v = (static_cast<double>(noise_words(seed, position, NoisePurpose::kDraw, u / 4)[u % 4]) + 0.5) * 0x1p-32;
      double time = -math::log1p(-v) / weight(row, by_logit, id);
      if (time < best) best = time, winner = id;
    }
    EXPECT_EQ(raw(stages::draw(s, seed, position, scratch)), winner);
    // The winner does not depend on the order in which candidates lie.
    s.sorted(s.size());
    EXPECT_EQ(raw(stages::draw(s, seed, position, scratch)), winner);
  });
}

}  // namespace
}  // namespace ibid
