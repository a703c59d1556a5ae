// Rejection verification: its formulas with exact fractions, its draws by counting. What is biased must fail here.
#include "spec/drawn/rejection.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <functional>
#include <numeric>
#include <random>

#include "sample/philox.h"
#include "sample/sampler.h"
#include "spec/gain.h"
#include "spec_counting.h"
#include "spec_laws.h"
#include "spec_mistakes.h"

namespace ibid {
namespace {

using testing::deviation;
using testing::distance;
using testing::Fraction;
using testing::kCountedVocab;
using testing::Law;
using testing::laws;
using testing::normal_logits;

Fraction least(const Fraction& a, const Fraction& b) { return a > b ? b : a; }

struct Verified {  // of one draft: what comes out, and how likely with the draft taken over
  Law out, accepted;
};

Verified verified(const Law& p, const Law& q) {
  using R = Rejection<Fraction>;
  Verified v{Law(p.size()), Law(p.size())};
  Fraction refused, mass;
  for (size_t x = 0; x < p.size(); ++x) {
    if (q[x] == Fraction(0)) continue;
    v.accepted[x] = q[x] * R::acceptance(p[x], q[x]);
    refused = refused + q[x] - v.accepted[x];
  }
  for (size_t x = 0; x < p.size(); ++x) mass = mass + R::residual(p[x], q[x]);
  for (size_t x = 0; x < p.size(); ++x) {
    v.out[x] = v.accepted[x];
    if (refused > Fraction(0)) v.out[x] = v.out[x] + refused * R::residual(p[x], q[x]) / mass;
  }
  return v;
}

// Row S1, and S2 beside it.
TEST(Rejection, GivesTheTargetsLawWhateverTheDraftsByEnumeration) {
  const std::vector<Law> all = laws(4);
  for (const Law& p : all) {
    for (const Law& q : all) {
      const Verified v = verified(p, q);
      ASSERT_EQ(v.out, p);
      Fraction alpha, overlap, apart, beta;
      for (size_t x = 0; x < p.size(); ++x) {
        alpha = alpha + v.accepted[x];
        overlap = overlap + least(p[x], q[x]);
        apart = apart + (p[x] > q[x] ? p[x] - q[x] : q[x] - p[x]);
        beta = beta + Rejection<Fraction>::residual(p[x], q[x]);
      }
      ASSERT_EQ(alpha, overlap);
      ASSERT_EQ(alpha, Fraction(1) - apart / Fraction(2));
      ASSERT_EQ(beta, Fraction(1) - alpha);
    }
  }
}

// A chain of two and the bonus token: the law of three tokens is the target's product, whatever the laws after each
// token are.
TEST(Rejection, GivesTheTargetsLawOfWholeChainsByEnumeration) {
  const std::vector<Law> all = laws(4);
  std::mt19937 random(3);
  const auto any = [&]() -> const Law& { return all[random() % all.size()]; };
  for (int turn = 0; turn < 300; ++turn) {
    const Law p1 = any(), q1 = any();
    std::vector<Law> p2, q2;
    for (int x = 0; x < 4; ++x) p2.push_back(any()), q2.push_back(any());
    const Verified first = verified(p1, q1);
    for (size_t x = 0; x < 4; ++x) {
      // After an accepted x comes the second draft, after another one the next step's plain draw.
      const Fraction refused = first.out[x] - first.accepted[x];
      const Verified second = verified(p2[x], q2[x]);
      for (size_t y = 0; y < 4; ++y)
        ASSERT_EQ(first.accepted[x] * second.out[y] + refused * p2[x][y], p1[x] * p2[x][y]);
    }
  }
}

// Row S8: to take over a drawn draft where the target happens to draw it too, and else from the residual.
TEST(Rejection, AgreementOfTwoDrawsIsBiased) {
  int64_t n_biased = 0, n = 0;
  for (const Law& p : laws(4)) {
    for (const Law& q : laws(4)) {
      Fraction agreed, mass;
      for (size_t x = 0; x < p.size(); ++x)
        agreed = agreed + p[x] * q[x], mass = mass + Rejection<Fraction>::residual(p[x], q[x]);
      if (mass == Fraction(0)) continue;
      Law out;
      for (size_t x = 0; x < p.size(); ++x)
        out.push_back(p[x] * q[x] + (Fraction(1) - agreed) * Rejection<Fraction>::residual(p[x], q[x]) / mass);
      n_biased += out != p, ++n;
    }
  }
  EXPECT_GT(n_biased, 4 * n / 5);
}

// ---- draws ---------------------------------------------------------------------------------------------------------

struct Counted {
  std::vector<int64_t> n;  // of each token
  std::vector<double> p, q;
  int64_t n_accepted = 0;
  double alpha() const {
    double sum = 0;
    for (size_t i = 0; i < p.size(); ++i) sum += std::min(p[i], q[i]);
    return sum;
  }
};

// n tokens, each a draft of one law verified against another, by the sampler itself.
Counted counted(const SamplingParams& params, const std::vector<float>& of_p, const std::vector<float>& of_q,
                int64_t n) {
  const auto sampler = Sampler::compile(params, kCountedVocab, {}, 11).value();
  const std::vector<TokenId> prompt = {TokenId{1}, TokenId{2}, TokenId{3}, TokenId{1}, TokenId{2}};
  const SampleHistory history{prompt, std::span(prompt).first(3)};
  SamplerScratch scratch;
  Counted out{std::vector<int64_t>(kCountedVocab), std::vector<double>(kCountedVocab),
              std::vector<double>(kCountedVocab)};
  std::vector<float> p(kCountedVocab), q(kCountedVocab);
  std::vector<double> law;
  for (int64_t i = 0; i < n; ++i) {
    SamplerState state = sampler->initial_state(static_cast<uint64_t>(i));
    SamplerState of_draft = state;
    ProposeRule propose(q);
    const TokenId draft = sampler->sample(of_q, history, of_draft, scratch, {}, &propose)->chosen.token;
    const Sibling offered{draft, q};
    VerifyRule verify({&offered, 1}, law);
    const TokenId token = sampler->sample(of_p, history, state, scratch, {}, &verify)->chosen.token;
    ++out.n[static_cast<size_t>(raw(token))];
    out.n_accepted += token == draft;
    if (i % 64 != 0 && params.xtc_probability == 0) continue;
    // XTC tosses a coin for each position: the law is the mean over coins.
    state = sampler->initial_state(static_cast<uint64_t>(i));
    ProposeRule target(p);
    EXPECT_TRUE(sampler->sample(of_p, history, state, scratch, {}, &target).ok());
    for (size_t x = 0; x < p.size(); ++x) out.p[x] += static_cast<double>(p[x]), out.q[x] += static_cast<double>(q[x]);
  }
  const double total = std::accumulate(out.p.begin(), out.p.end(), 0.0);
  for (size_t x = 0; x < p.size(); ++x) out.p[x] /= total, out.q[x] /= total;
  return out;
}

// Rows S3 and S4.
TEST(Rejection, AcceptsAsOftenAsTheLawsOverlapAndDrawsTheTargetsLaw) {
  const std::vector<float> p = normal_logits(1, 1), q = normal_logits(2, 0.7F, &p);
  constexpr int64_t kDraws = 200'000;
  const Counted c = counted({}, p, q, kDraws);
  EXPECT_NEAR(static_cast<double>(c.n_accepted) / kDraws, c.alpha(), 0.01 * c.alpha());
  int32_t n_residual = 0;
  for (size_t x = 0; x < c.p.size(); ++x) n_residual += c.p[x] > c.q[x];
  EXPECT_GE(n_residual, 60);  // with three, shared noise would not show
  EXPECT_LT(c.alpha(), 0.85);
  EXPECT_LT(deviation(c.n, c.p), testing::kMostDeviation);
  EXPECT_LT(distance(c.n, c.p), 0.01);
  EXPECT_LT(distance(c.n, c.p), testing::distance_of_direct_draws(c.p, kDraws, 11));
}

// Which statistic sees which mistake in 200,000 draws: G, and a distance beyond that of a thousand runs of direct draws
// (seed 11). Both see all of them.
TEST(Rejection, EachMistakeIsSeenByGAndByDistance) {
  const std::vector<float> of_p = normal_logits(1, 1), of_q = normal_logits(2, 0.7F, &of_p);
  constexpr int64_t kDraws = 200'000;
  const Counted c = counted({}, of_p, of_q, 64);
  const double most = testing::distance_of_direct_draws(c.p, kDraws, 11);
  EXPECT_LT(most, 0.011);
  for (const auto& [way, name] : testing::kWays) {
    const std::vector<int64_t> counts = testing::counts_of(way, c.p, c.q, kDraws, 12);
    const bool is_wrong = way != testing::Way::kRight;
    EXPECT_EQ(deviation(counts, c.p) > testing::kMostDeviation, is_wrong) << "G: " << name;
    EXPECT_EQ(distance(counts, c.p) > most, is_wrong) << "distance: " << name;
  }
}

// Row S7: p and q are what the whole chain of stages leaves.
TEST(Rejection, DrawsTheTargetsLawUnderEveryStage) {
  const std::vector<float> p = normal_logits(3, 1.5F), q = normal_logits(4, 0.8F, &p);
  std::vector<std::pair<const char*, SamplingParams>> all(13);
  all[0] = {"temperature", {.temperature = 0.6F}};
  all[1] = {"hot", {.temperature = 1.7F}};
  all[2] = {"top_k", {.top_k = 12}};
  all[3] = {"top_p", {.top_p = 0.8F}};
  all[4] = {"min_p", {.min_p = 0.05F}};
  all[5] = {"typical", {.typical_p = 0.7F}};
  all[6] = {"sigma", {.top_n_sigma = 1}};
  all[7] = {"xtc", {.xtc_probability = 0.5F, .xtc_threshold = 0.05F}};
  all[8] = {"penalties", {.repetition_penalty = 1.5F, .presence_penalty = 0.7F, .frequency_penalty = 0.4F}};
  all[9] = {"dry and bans", {.no_repeat_ngram = 2, .dry_multiplier = 1, .banned = {TokenId{4}, TokenId{9}}}};
  all[10] = {"mirostat", {.mirostat = 2, .mirostat_tau = 3}};
  all[11] = {"several",
             {.logit_bias = {{TokenId{7}, 2.0F}},
              .temperature = 0.8F,
              .dynatemp_range = 0.3F,
              .top_p = 0.95F,
              .min_p = 0.01F}};
  all[12] = {"xtc of all", {.logit_bias = {{TokenId{7}, -300.0F}}, .xtc_probability = 0.5F, .xtc_threshold = 0}};
  for (const auto& [name, params] : all) {
    const Counted c = counted(params, p, q, 40'000);
    EXPECT_LT(deviation(c.n, c.p), testing::kMostDeviation) << name;
  }
}

// A draft that was not sampled is certain; a distribution that does not contain it rejects it; equal distributions
// reject nothing.
TEST(Rejection, HasItsEdges) {
  const std::vector<Candidate> support = {{.weight = 1, .id = 2}, {.weight = 3, .id = 5}};
  int64_t n_two = 0, n_five = 0;
  uint64_t seed = 0;
  std::vector<double> law;
  const auto verified = [&](TokenId draft, std::span<const float> q) {
    const Sibling offered{draft, q};
    return VerifyRule({&offered, 1}, law).draw(support, 4, seed, 7);
  };
  for (; seed < 40'000; ++seed) {
    n_two += verified(TokenId{2}, {}) == TokenId{2};
    n_five += verified(TokenId{9}, {}) == TokenId{5};
  }
  EXPECT_NEAR(static_cast<double>(n_two), 10'000, 500);
  EXPECT_NEAR(static_cast<double>(n_five), 30'000, 500);
  std::vector<float> q(8);
  for (seed = 0; seed < 2'000; ++seed) {
    const TokenId draft = ProposeRule(q).draw(support, 4, seed, 7);
    EXPECT_EQ(verified(draft, q), draft);
  }
  // Row S10: next to nothing is not nothing.
  q.assign(8, 0);
  q[2] = 1e-38F, q[5] = 1;
  EXPECT_EQ(verified(TokenId{2}, q), TokenId{2});
}

// No stage leaves such a support; should one, the token is of it all the same, and the race's.
TEST(Rejection, GivesATokenOfASupportThatWeighsNothing) {
  const std::vector<Candidate> support = {{.weight = 0, .id = 5}, {.weight = 0, .id = 2}};
  std::vector<float> q(8);
  ProposeRule propose(q, 3);
  FirstOfRace first(3);
  const Sibling offered{TokenId{5}, {}};
  std::vector<double> law;
  VerifyRule verify({&offered, 1}, law);
  for (DrawRule* rule :
       {static_cast<DrawRule*>(&propose), static_cast<DrawRule*>(&first), static_cast<DrawRule*>(&verify)})
    EXPECT_EQ(rule->draw(support, 0, 1, 7), TokenId{2});
  EXPECT_EQ(propose.drawn().size(), 1u);
  EXPECT_EQ(first.drawn().size(), 1u);
  for (const float x : q) EXPECT_EQ(x, 0);
}

// ---- formulas ------------------------------------------------------------------------------------------------------

// Row S5.
TEST(Gain, ExpectedTokensAreTheSeriesAndTheSimulation) {
  EXPECT_NEAR(expected_tokens(0.8, 5), 3.689, 0.001);
  EXPECT_EQ(expected_tokens(0, 5), 1);
  EXPECT_EQ(expected_tokens(1, 5), 6);
  const std::vector<float> p = normal_logits(5, 1), q = normal_logits(6, 0.6F, &p);
  const auto sampler = Sampler::compile({}, kCountedVocab, {}, 1).value();
  SamplerScratch scratch;
  std::vector<float> of_q(kCountedVocab);
  std::vector<double> law;
  constexpr int64_t kRounds = 20'000;
  constexpr int32_t kDrafts = 5;
  int64_t n_tokens = 0, n_right = 0, n_verified = 0;
  std::vector<TokenId> text;
  for (int64_t round = 0; round < kRounds; ++round) {
    for (int32_t i = 0; i <= kDrafts; ++i) {
      text.assign(static_cast<size_t>(i) + 1, TokenId{0});
      SamplerState a = sampler->initial_state(static_cast<uint64_t>(round)), b = a;
      ProposeRule propose(of_q);
      const TokenId draft = sampler->sample(q, {text, {}}, a, scratch, {}, &propose)->chosen.token;
      ++n_tokens;
      if (i == kDrafts) break;
      const Sibling offered{draft, of_q};
      VerifyRule verify({&offered, 1}, law);
      const bool is_right = sampler->sample(p, {text, {}}, b, scratch, {}, &verify)->chosen.token == draft;
      ++n_verified, n_right += is_right;
      if (!is_right) break;
    }
  }
  const double alpha = static_cast<double>(n_right) / static_cast<double>(n_verified);
  EXPECT_NEAR(static_cast<double>(n_tokens) / kRounds, expected_tokens(alpha, kDrafts), 0.03);
}

// Row S5 in its general form: drafts of which each is from a law of its own, further off from place to place.
TEST(Gain, ExpectedTokensOfDraftsThatDifferAreTheSumOfTheirProducts) {
  EXPECT_EQ(expected_tokens(std::span<const double>()), 1);
  EXPECT_DOUBLE_EQ(expected_tokens(std::array{0.5, 0.5, 0.5}), expected_tokens(0.5, 3));
  EXPECT_DOUBLE_EQ(expected_tokens(std::array{0.9, 0.5, 0.25}), 1 + 0.9 + 0.9 * 0.5 + 0.9 * 0.5 * 0.25);
  EXPECT_DOUBLE_EQ(expected_tokens(std::array{0.9, 0.0, 1.0}), 1.9);
  const std::vector<float> p = normal_logits(5, 1);
  std::vector<std::vector<float>> q;
  std::vector<double> alphas;
  for (uint64_t i = 0; i < 4; ++i) {
    q.push_back(normal_logits(6 + i, 0.3F + 0.4F * static_cast<float>(i), &p));
    alphas.push_back(counted({}, p, q.back(), 64).alpha());
    EXPECT_LT(alphas[i], i == 0 ? 1 : alphas[i - 1] - 0.05) << "they must differ";
  }
  const auto sampler = Sampler::compile({}, kCountedVocab, {}, 1).value();
  SamplerScratch scratch;
  std::vector<float> of_q(kCountedVocab);
  std::vector<double> law;
  constexpr int64_t kRounds = 20'000;
  int64_t n_tokens = 0;
  for (int64_t round = 0; round < kRounds; ++round) {
    std::vector<TokenId> text = {TokenId{0}};
    for (const std::vector<float>& of_place : q) {
      ++n_tokens;
      SamplerState a = sampler->initial_state(static_cast<uint64_t>(round)), b = a;
      ProposeRule propose(of_q);
      const TokenId draft = sampler->sample(of_place, {text, {}}, a, scratch, {}, &propose)->chosen.token;
      const Sibling offered{draft, of_q};
      VerifyRule verify({&offered, 1}, law);
      if (sampler->sample(p, {text, {}}, b, scratch, {}, &verify)->chosen.token != draft) break;
      text.push_back(draft);
    }
    n_tokens += text.size() == 1 + q.size();  // the bonus token
  }
  EXPECT_NEAR(static_cast<double>(n_tokens) / kRounds, expected_tokens(alphas), 0.03);
}

// Row S6, and what others call it: the steps that are spared times the part of them that is spent, which is the same;
// and tokens a second.
TEST(Gain, SpeedupsAreThoseOfTheNotes) {
  EXPECT_NEAR(speedup(0.8, 4, 0.1), 2.401, 0.001);
  EXPECT_NEAR(speedup(0.5, 4, 0.1), 1.384, 0.001);
  EXPECT_NEAR(speedup(0.8, 4, 1), 0.672, 0.001);
  for (double a = 0; a < 1; a += 0.05) {
    EXPECT_LE(speedup(a, 4, 1), 1) << a;  // a draft as costly as the target never pays
    for (const int32_t k : {1, 2, 4, 8}) {
      for (const double step : {0.003, 0.05}) {
        for (const double c : {0.05, 0.1, 0.15, 1.0}) {
          const double draft = c * step;
          EXPECT_NEAR(k * step / (step + k * draft) * expected_tokens(a, k) / k, speedup(a, k, c), 1e-12);
          EXPECT_NEAR(tokens_per_second(a, k, step, draft), speedup(a, k, c) / step, 1e-9);
          EXPECT_NEAR(tokens_per_second(a, k, step, draft, 1.5), speedup(a, k, c, 1.5) / step, 1e-9);
        }
      }
    }
  }
  EXPECT_EQ(tokens_per_second(0.7, 0, 0.01, 0.001), 100);  // no drafts: a token a step
  // Where drafts take a twentieth of the target's time or less, two to three times is what most see.
  for (const double a : {0.7, 0.8}) {
    EXPECT_GT(speedup(a, 4, 0.05), 2);
    EXPECT_LT(speedup(a, 4, 0.05), 3);
  }
}

}  // namespace
}  // namespace ibid
