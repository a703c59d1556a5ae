// Rejection at the default model's vocabulary, by counting: every stage of the sampler, alone and with every other.
// Slow: what is drawn from 49,152 tokens looks at each of them.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <string>

#include "sample/sampler.h"
#include "spec/drawn/rejection.h"
#include "spec_counting.h"
#include "spec_mistakes.h"

namespace ibid {
namespace {

using testing::deviation;
using testing::distance;
using testing::distance_of_direct_draws;

constexpr int32_t kVocab = 49'152;
constexpr uint64_t kSeed = 11;
// In standard deviations: one in a hundred million, so that all draws of this file together err once in a million.
constexpr double kMostDeviation = 5.62;

struct Rows {
  std::vector<float> p = testing::normal_logits(1, 3, nullptr, kVocab);
  std::vector<float> q = testing::normal_logits(2, 0.8F, &p, kVocab);
  std::vector<TokenId> best;  // of p, the likeliest first
  std::vector<TokenId> prompt, answer;
  std::vector<uint32_t> mask;  // a grammar's: half of the tokens

  Rows() {
    for (int32_t x = 0; x < kVocab; ++x) best.push_back(TokenId{x});
    const auto by_logit = [this](TokenId a, TokenId b) {
      return p[static_cast<size_t>(raw(a))] > p[static_cast<size_t>(raw(b))];
    };
    std::ranges::partial_sort(best, best.begin() + 32, by_logit);
    // What penalties, bans and repeats look at stands in the way of what is likely: after 0 1 2 0 1 comes 2.
    prompt = {best[3], best[0], best[1], best[2], best[4]};
    answer = {best[5], best[0], best[1]};
    std::mt19937 random(3);
    for (int32_t word = 0; word < kVocab / 32; ++word) mask.push_back(static_cast<uint32_t>(random()));
  }
};
const Rows& rows() {
  static const Rows all;
  return all;
}

// What is left to draw from, after all stages.
class Looking final : public DrawRule {
 public:
  TokenId draw(std::span<const Candidate> support, double total_weight, uint64_t, int32_t) override {
    candidates.assign(support.begin(), support.end());
    total = total_weight;
    return TokenId{support.front().id};
  }
  std::vector<double> law() const {
    std::vector<double> out(kVocab);
    for (const Candidate& c : candidates) out[static_cast<size_t>(c.id)] = static_cast<double>(c.weight) / total;
    return out;
  }
  std::vector<Candidate> candidates;
  double total = 0;
};

struct Setting {
  std::string name;
  SamplingParams params;
  bool has_mask = false;
};

// Drafts of q's row verified against p's, by a sampler of this setting. A row gives the same support for every seed,
// but where XTC tosses a coin; so it is looked at once, and now and then the whole way is gone.
class Verified {
 public:
  explicit Verified(const Setting& setting)
      : has_coin_(setting.params.xtc_probability > 0),
        mask_(setting.has_mask ? std::span<const uint32_t>(rows().mask) : std::span<const uint32_t>()),
        ends_({rows().best[1]}),
        sampler_(Sampler::compile(setting.params, kVocab, ends_, kSeed).value()) {
    look(0);
    p = of_p_.law(), q = of_q_.law();
  }

  std::vector<int64_t> counts(int64_t n) {
    std::vector<int64_t> out(kVocab);
    std::vector<double> mean_p(kVocab);
    for (int64_t i = 0; i < n; ++i) {
      if (has_coin_) look(static_cast<uint64_t>(i));
      for (size_t x = 0; has_coin_ && x < of_p_.candidates.size(); ++x)
        mean_p[static_cast<size_t>(of_p_.candidates[x].id)] +=
            static_cast<double>(of_p_.candidates[x].weight) / of_p_.total / static_cast<double>(n);
      const Drawn drawn = draw(static_cast<uint64_t>(i));
      ++out[static_cast<size_t>(raw(drawn.token))];
      n_accepted += drawn.is_draft;
      if (i % (n / 4) == 0) go_the_whole_way(static_cast<uint64_t>(i));
    }
    if (has_coin_) p = mean_p;
    return out;
  }
  std::vector<double> p, q;
  int64_t n_accepted = 0;

 private:
  SampleHistory history() const { return {rows().prompt, rows().answer}; }
  void look(uint64_t choice) {
    SamplerState a = sampler_->initial_state(choice), b = a;
    EXPECT_TRUE(sampler_->sample(rows().p, history(), a, scratch_, mask_, &of_p_).ok());
    EXPECT_TRUE(sampler_->sample(rows().q, history(), b, scratch_, mask_, &of_q_).ok());
  }
  struct Drawn {
    TokenId token;
    bool is_draft;
  };
  Drawn draw(uint64_t choice) {
    const int32_t position = history().position();
    ProposeRule propose(q_row_);
    const TokenId draft = propose.draw(of_q_.candidates, of_q_.total, kSeed + choice, position);
    const Sibling offered{draft, q_row_};
    const TokenId token =
        VerifyRule({&offered, 1}, scratch_law_).draw(of_p_.candidates, of_p_.total, kSeed + choice, position);
    return {token, token == draft};
  }
  void go_the_whole_way(uint64_t choice) {
    SamplerState a = sampler_->initial_state(choice), b = a;
    ProposeRule propose(q_row_);
    const TokenId draft = sampler_->sample(rows().q, history(), a, scratch_, mask_, &propose)->chosen.token;
    const Sibling offered{draft, q_row_};
    VerifyRule verify({&offered, 1}, scratch_law_);
    EXPECT_EQ(sampler_->sample(rows().p, history(), b, scratch_, mask_, &verify)->chosen.token, draw(choice).token);
  }

  bool has_coin_;
  std::span<const uint32_t> mask_;
  std::vector<TokenId> ends_;
  std::shared_ptr<const Sampler> sampler_;
  SamplerScratch scratch_;
  Looking of_p_, of_q_;
  std::vector<float> q_row_ = std::vector<float>(kVocab);
  std::vector<double> scratch_law_;
};

int64_t n_residual(const Verified& v) {
  int64_t n = 0;
  for (size_t x = 0; x < v.p.size(); ++x) n += v.p[x] > v.q[x];
  return n;
}

// Rows S4 and S7: 200,000 draws are as far from the law as direct draws are, of which one in a thousand is further.
TEST(SlowFullVocabulary, RejectionIsAsFarFromTheLawAsDirectDrawsAre) {
  constexpr int64_t kDraws = 200'000;
  Verified v({"min_p", {.min_p = 0.004F}});
  const std::vector<int64_t> counts = v.counts(kDraws);
  EXPECT_GE(n_residual(v), 60);
  double alpha = 0;
  for (size_t x = 0; x < v.p.size(); ++x) alpha += std::min(v.p[x], v.q[x]);
  EXPECT_NEAR(static_cast<double>(v.n_accepted) / kDraws, alpha, 0.01 * alpha);
  EXPECT_LT(deviation(counts, v.p), kMostDeviation);
  EXPECT_LT(distance(counts, v.p), distance_of_direct_draws(v.p, kDraws, kSeed));
}

// Row S8, and what else goes wrong (tests/spec_mistakes.h), over all 49,152 tokens: what G sees and what the distance.
TEST(SlowFullVocabulary, EachMistakeIsSeenByGAndByDistance) {
  constexpr int64_t kDraws = 200'000;
  const Verified v({"none", {}});
  EXPECT_GE(n_residual(v), 60);
  EXPECT_TRUE(std::ranges::all_of(v.p, [](double x) { return x > 0; }));
  const double most = distance_of_direct_draws(v.p, kDraws, kSeed);
  for (const auto& [way, name] : testing::kWays) {
    const std::vector<int64_t> counts = testing::counts_of(way, v.p, v.q, kDraws, 12);
    const bool is_wrong = way != testing::Way::kRight;
    EXPECT_EQ(deviation(counts, v.p) > kMostDeviation, is_wrong) << "G: " << name;
    EXPECT_EQ(distance(counts, v.p) > most, is_wrong) << "distance: " << name;
  }
}

// Each by its name, as a change of what is there.
struct Stage {
  const char* name;
  void (*add)(Setting& to);
};
const Stage kStages[] = {
    {"temperature", [](Setting& s) { s.params.temperature = 0.7F; }},
    {"dynamic temperature", [](Setting& s) { s.params.dynatemp_range = 0.3F; }},
    {"top_k", [](Setting& s) { s.params.top_k = 40; }},
    {"top_p", [](Setting& s) { s.params.top_p = 0.8F; }},
    {"min_p", [](Setting& s) { s.params.min_p = 0.02F; }},
    {"typical", [](Setting& s) { s.params.typical_p = 0.6F; }},
    {"sigma", [](Setting& s) { s.params.top_n_sigma = 1.5F; }},
    {"xtc", [](Setting& s) { s.params.xtc_probability = 0.5F, s.params.xtc_threshold = 0.02F; }},
    {"mirostat 1", [](Setting& s) { s.params.mirostat = 1, s.params.mirostat_tau = 10; }},
    {"mirostat 2", [](Setting& s) { s.params.mirostat = 2, s.params.mirostat_tau = 4; }},
    {"repetition", [](Setting& s) { s.params.repetition_penalty = 1.3F; }},
    {"presence and frequency", [](Setting& s) { s.params.presence_penalty = 1, s.params.frequency_penalty = 0.6F; }},
    {"dry", [](Setting& s) { s.params.dry_multiplier = 0.8F; }},
    {"no repeats", [](Setting& s) { s.params.no_repeat_ngram = 3; }},
    {"bans",
     [](Setting& s) {
       const auto& best = rows().best;
       s.params.banned = {best[6]}, s.params.banned_sequences = {{best[1], best[7]}};
     }},
    {"bias",
     [](Setting& s) {
       s.params.logit_bias = {{rows().best[8], 2.0F}, {TokenId{7}, 9.0F}};
     }},
    {"allowed",
     [](Setting& s) {
       for (int32_t x = 0; x < kVocab; x += 3) s.params.allowed.push_back(TokenId{x});
       s.params.allowed.push_back(rows().best[0]);
     }},
    {"min_tokens", [](Setting& s) { s.params.min_tokens = 20; }},
    {"grammar", [](Setting& s) { s.has_mask = true; }},
};

void expect_law(const Setting& setting, int64_t n) {
  Verified v(setting);
  const std::vector<int64_t> counts = v.counts(n);
  EXPECT_LT(deviation(counts, v.p), kMostDeviation) << setting.name;
  EXPECT_GT(v.n_accepted, n / 10) << setting.name;
}

// Row S7 at the whole vocabulary: what a stage leaves, be it all of the tokens.
TEST(SlowFullVocabulary, RejectionHasTheTargetsLawUnderEveryStage) {
  for (const Stage& stage : kStages) {
    Setting setting{stage.name, {}};
    stage.add(setting);
    expect_law(setting, 2'000);
  }
}

// In pairs, of which those that cut nothing off have the 400 likeliest, so that a draw is quick.
TEST(SlowFullVocabulary, RejectionHasTheTargetsLawUnderEveryTwoStages) {
  for (const Stage& one : kStages) {
    for (const Stage* other = &one + 1; other != std::end(kStages); ++other) {
      Setting setting{std::string(one.name) + " and " + other->name, {}};
      one.add(setting), other->add(setting);
      if (setting.params.top_k == 0) setting.params.top_k = 400;
      expect_law(setting, setting.params.xtc_probability > 0 ? 1'000 : 2'500);
    }
  }
}

}  // namespace
}  // namespace ibid
