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

namespace ibid {
namespace {

using Row = std::vector<float>;
using Ids = std::vector<int32_t>;
constexpr float kMasked = -std::numeric_limits<float>::infinity();

// Rows of many sizes: continuous, heavily tied (few distinct values) and partly masked.
Row random_row(std::mt19937& rng) {
  // Some are as wide as a vocabulary, so that whole rows of noise are drawn.
  int n = std::uniform_int_distribution<int>(1, rng() % 8 == 0 ? 5000 : 600)(rng);
  int kind = std::uniform_int_distribution<int>(0, 2)(rng);
  Row row;
  std::normal_distribution<float> normal(0, 3);
  for (int i = 0; i < n; ++i) {
    float z = normal(rng);
    if (kind == 1) z = std::round(z);
    if (kind == 2 && i > 0 && rng() % 3 == 0) z = kMasked;
    row.push_back(z);
  }
  return row;
}

std::vector<TokenId> random_tokens(std::mt19937& rng, int max_len, int vocab_size) {
  std::vector<TokenId> out(rng() % static_cast<uint32_t>(max_len + 1));
  for (TokenId& t : out) t = TokenId{static_cast<int32_t>(rng() % static_cast<uint32_t>(vocab_size))};
  return out;
}

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
std::set<int32_t> kept(const stages::Support& s) {
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
    if (testing::Test::HasFailure()) FAIL() << "row " << i;
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
    while (n_top < sorted.size() && weight(row, sorted, sorted[n_top]) >= static_cast<double>(threshold) * z) ++n_top;
    bool acts = open_unit(noise_words(seed, 9, NoisePurpose::kXtc, 0)[0]) < 0.5 && n_top >= 2;
    std::set<int32_t> expected(sorted.begin() + (acts ? static_cast<long>(n_top) - 1 : 0), sorted.end());
    stages::xtc(s, probability, threshold, seed, 9);
    EXPECT_EQ(kept(s), expected);
  });
}

TEST(Stages, MirostatKeepsTokensUpToItsSurprise) {
  for_random_rows(300, [](const Row& row, stages::Support& s, SamplerScratch&, std::mt19937& rng) {
    Ids sorted = sorted_ids(row);
    float mu = static_cast<float>(rng() % 1500) / 100.0f;
    double lowest = total(row, sorted) * math::exp(-static_cast<double>(mu) * 0.693147180559945309417);
    std::set<int32_t> expected = {sorted[0]};
    for (int32_t id : sorted) {
      if (weight(row, sorted, id) >= lowest) expected.insert(id);
    }
    stages::mirostat(s, mu);
    EXPECT_EQ(kept(s), expected);
  });
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

TEST(Stages, PenaltiesEqualCountingByHand) {
  std::mt19937 rng(3);
  SamplerScratch scratch;
  for (int i = 0; i < 300; ++i) {
    Row row = random_row(rng);
    auto v = static_cast<int>(row.size());
    auto prompt = random_tokens(rng, 40, v), answer = random_tokens(rng, 40, v);
    SampleHistory history{prompt, answer};
    auto last_n = static_cast<int32_t>(rng() % 50) - 1;
    float r = 0.5f + static_cast<float>(rng() % 100) / 50.0f, pres = 0.7f, freq = -0.3f;
    std::vector<TokenId> all = prompt;
    all.insert(all.end(), answer.begin(), answer.end());
    size_t from = last_n < 0 || static_cast<size_t>(last_n) > all.size() ? 0 : all.size() - static_cast<size_t>(last_n);
    Row expected = row;
    for (int t = 0; t < v; ++t) {
      float& z = expected[static_cast<size_t>(t)];
      if (std::count(all.begin() + static_cast<long>(from), all.end(), TokenId{t}) > 0) z = z > 0 ? z / r : z * r;
      auto n = static_cast<float>(std::count(answer.begin(), answer.end(), TokenId{t}));
      if (n > 0) z -= n * freq + pres;
    }
    stages::repetition_penalty(row, history, r, last_n, scratch);
    stages::presence_frequency_penalty(row, history, pres, freq, scratch);
    ASSERT_EQ(row, expected);
  }
}

TEST(Stages, NoRepeatNgramAndBadWordsEqualSearchingByHand) {
  std::mt19937 rng(4);
  SamplerScratch scratch;
  for (int i = 0; i < 300; ++i) {
    int v = 4;
    auto prompt = random_tokens(rng, 12, v), answer = random_tokens(rng, 12, v);
    std::vector<TokenId> all = prompt;
    all.insert(all.end(), answer.begin(), answer.end());
    auto n = 1 + static_cast<int32_t>(rng() % 4);
    Row row(static_cast<size_t>(v), 1.0f), expected = row;
    for (int t = 0; t < v; ++t) {
      std::vector<TokenId> next = all;
      next.push_back(TokenId{t});
      if (next.size() <= static_cast<size_t>(n)) continue;
      auto tail = next.end() - n;
      if (std::search(next.begin(), next.end() - 1, tail, next.end()) != next.end() - 1)
        expected[static_cast<size_t>(t)] = kMasked;
    }
    stages::no_repeat_ngram(row, {prompt, answer}, n, scratch);
    ASSERT_EQ(row, expected) << i;

    SamplingParams params;
    params.banned_sequences = {{TokenId{1}, TokenId{2}}, {TokenId{3}}};
    Row banned(static_cast<size_t>(v), 0.0f), wanted = banned;
    wanted[3] = kMasked;
    if (!all.empty() && all.back() == TokenId{1}) wanted[2] = kMasked;
    stages::ban_sequences(banned, {prompt, answer}, params);
    ASSERT_EQ(banned, wanted);
  }
}

TEST(Stages, DryPenaltyGrowsWithTheRepeatThatATokenWouldExtend) {
  std::mt19937 rng(5);
  SamplerScratch scratch;
  for (int i = 0; i < 500; ++i) {
    int v = 4;
    auto prompt = random_tokens(rng, 20, v), answer = random_tokens(rng, 20, v);
    std::vector<TokenId> all = prompt;
    all.insert(all.end(), answer.begin(), answer.end());
    SamplingParams params;
    params.dry_multiplier = 0.8f;
    params.dry_allowed_len = 1 + static_cast<int32_t>(rng() % 3);
    if (rng() % 2) params.dry_breakers = {{TokenId{3}}};
    // The part of the history after the last breaker is what may be repeated.
    size_t after = 0;
    if (!params.dry_breakers.empty()) {
      for (size_t k = 0; k < all.size(); ++k) {
        if (all[k] == TokenId{3}) after = k + 1;
      }
    }
    Row row(static_cast<size_t>(v), 0.0f), expected = row;
    std::vector<int> longest(static_cast<size_t>(v), 0);
    for (size_t k = 0; k + 1 < all.size() + 0; ++k) {  // an earlier occurrence ends at k, its next token is all[k + 1]
      size_t len = 0;
      while (len <= k && len < all.size() - after && all[k - len] == all[all.size() - 1 - len]) ++len;
      int& best = longest[static_cast<size_t>(raw(all[k + 1]))];
      best = std::max(best, static_cast<int>(len));
    }
    for (size_t t = 0; t < longest.size(); ++t) {
      if (longest[t] >= params.dry_allowed_len) {
        expected[t] -= static_cast<float>(0.8f * std::pow(1.75, longest[t] - params.dry_allowed_len));
      }
    }
    stages::dry_penalty(row, {prompt, answer}, params, scratch);
    for (size_t t = 0; t < row.size(); ++t) ASSERT_NEAR(row[t], expected[t], 1e-4 * (1 + std::fabs(expected[t]))) << i;
  }
}

}  // namespace
}  // namespace ibid
