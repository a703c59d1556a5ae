// Requests whose drafts are verified by rejection: the distribution of their answers is the target's, their bytes
// depend on how many drafts there are and on nothing else.
#include <gtest/gtest.h>

#include <functional>
#include <list>
#include <map>

#include "engine/engine.h"
#include "fake_model.h"
#include "spec/drawn/rejection.h"
#include "spec/model/draft_model.h"
#include "spec_counting.h"

namespace ibid {
namespace {

using testing::FakeModel;
using testing::kFakeEnd;
using testing::kFakeVocabSize;

constexpr int32_t kContext = 64;

// `part` of the target's logits, plus a part that depends on the position.
void blur(std::span<float> x, uint64_t position, float part) {
  for (size_t v = 0; v < x.size(); ++v)
    x[v] = part * x[v] + (1 - part) * static_cast<float>(testing::mix(position, v) % 4096) / 512;
}

// Close to the target but different; `part` of the target's logits.
class Near final : public ForwardPass {
 public:
  explicit Near(float part) : part_(part) {}
  const ModelFacts& facts() const override { return fake_.facts(); }
  void run(const ForwardBatch& b, std::span<const PagedKv> kv, const TensorView& logits,
           const HiddenStates& hidden) override {
    fake_.run(b, kv, logits, hidden);
    for (int32_t row = 0; row < b.n_rows; ++row) {
      const auto position = static_cast<uint64_t>(b.positions[b.logit_rows[row]]);
      if (part_ < 1) blur({logits.row_as<float>(row), kFakeVocabSize}, position, part_);
    }
  }

 private:
  float part_;
  FakeModel fake_{kContext};
};

Request request(uint64_t id, uint64_t seed, int32_t max_tokens) {
  Request r;
  r.id = RequestId{id};
  r.prompt = {TokenId{3}, TokenId{9}, TokenId{27}};
  r.max_tokens = max_tokens;
  r.sampling.seed = seed;
  r.sampling.temperature = 1.6F;
  r.sampling.top_k = 24;
  r.sampling.repetition_penalty = 1.3F;
  r.speculation.verifier = Verifier::kRejection;
  return r;
}

struct Answers {
  std::map<uint64_t, std::vector<TokenId>> tokens;  // by id
  EngineStats stats;
};

std::unique_ptr<Proposer> near_model(float part, Stream& stream) {
  const DraftModelOptions options{
      .block_len = 8, .kv_bytes = 1 << 20, .vocab_size = kFakeVocabSize, .end_of_generation = {kFakeEnd}};
  return DraftModel::create(std::make_unique<Near>(part), stream, options).value();
}

using Propose = std::function<std::unique_ptr<Proposer>(Stream&)>;

Answers answers(const std::vector<Request>& requests, const Propose& propose, int32_t k, int32_t n_places = 8,
                double max_itl = 0) {
  ThreadTeam team(2);
  Stream stream(team);
  EngineOptions options;
  options.block_len = 8;
  options.max_sequences = n_places;
  options.max_itl = max_itl;
  options.max_rows = n_places * (1 + k);
  options.kv_bytes = 4 << 20;  // enough free blocks for all drafts
  auto engine = Engine::create(std::make_unique<FakeModel>(kContext), nullptr, stream, options, steady_clock()).value();
  if (k > 0) engine->speculate(propose(stream), k);
  Answers out;
  std::vector<Output> outputs;
  size_t n_submitted = 0;
  const auto submit = [&] {
    for (int i = 0; i < 64 && n_submitted < requests.size(); ++i)
      EXPECT_TRUE(engine->submit(requests[n_submitted++]).ok());
  };
  for (submit(); engine->step(outputs) || n_submitted < requests.size();) {
    for (const Output& o : outputs) {
      for (const TokenRecord& t : o.tokens) out.tokens[static_cast<uint64_t>(o.request)].push_back(t.chosen.token);
    }
    outputs.clear();
    if (engine->stats().n_waiting == 0) submit();
  }
  out.stats = engine->stats();
  return out;
}

Answers answers(const std::vector<Request>& requests, float part, int32_t k, int32_t n_places = 8, double max_itl = 0) {
  return answers(
      requests, [part](Stream& stream) { return near_model(part, stream); }, k, n_places, max_itl);
}

// The distribution at the i-th place of an answer, by enumeration of all prefixes; after an end of generation it is
// kFakeEnd.
std::vector<double> law_at(int32_t place, const Request& r) {
  const TokenId ends[] = {kFakeEnd};
  const auto sampler = Sampler::compile(r.sampling, kFakeVocabSize, ends, 0).value();
  SamplerScratch scratch;
  std::vector<double> law(kFakeVocabSize);
  std::vector<float> logits(kFakeVocabSize);
  std::vector<TokenId> answer;
  const auto go = [&](auto&& self, uint64_t hash, double mass) -> void {
    testing::fake_logits(hash, logits);
    SamplerState state = sampler->initial_state();
    std::vector<float> p(kFakeVocabSize);
    ProposeRule rule(p);
    EXPECT_TRUE(sampler->sample(logits, {r.prompt, answer}, state, scratch, {}, &rule).ok());
    for (int32_t x = 0; x < kFakeVocabSize; ++x) {
      const double of_x = mass * static_cast<double>(p[static_cast<size_t>(x)]);
      if (of_x == 0) continue;
      const bool is_there = static_cast<int32_t>(answer.size()) == place || TokenId{x} == kFakeEnd;
      if (is_there) law[static_cast<size_t>(x)] += of_x;
      if (is_there) continue;
      answer.push_back(TokenId{x});
      self(self, testing::mix(hash, static_cast<uint64_t>(x)), of_x);
      answer.pop_back();
    }
  };
  uint64_t hash = testing::mix(77, 0);
  for (const TokenId t : r.prompt) hash = testing::mix(hash, static_cast<uint64_t>(raw(t)));
  go(go, hash, 1);
  return law;
}

// Checks that the tokens at this place over all answers follow the distribution of `r`, from which the requests differ
// by the seed only.
void expect_law(const Answers& heard, int32_t place, const Request& r) {
  std::vector<int64_t> counts(kFakeVocabSize);
  for (const auto& [id, tokens] : heard.tokens) {
    const size_t at = std::min(static_cast<size_t>(place), tokens.size() - 1);
    ++counts[static_cast<size_t>(raw(tokens[at]))];
  }
  EXPECT_LT(testing::deviation(counts, law_at(place, r)), testing::kMostDeviation) << place;
}

// End to end: the draft model's own distribution, the chain, the token after a rejected draft and after an accepted
// one.
TEST(EngineRejection, AnswersHaveTheTargetsLaw) {
  constexpr int32_t kAnswers = 12'000, kPlaces = 3;
  std::vector<Request> all;
  for (uint64_t i = 1; i <= kAnswers; ++i) all.push_back(request(i, 77 * i, kPlaces + 2));
  const Answers heard = answers(all, 0.6F, 2);
  EXPECT_GT(heard.stats.accepted_tokens, heard.stats.drafted_tokens / 4);
  EXPECT_LT(heard.stats.accepted_tokens, heard.stats.drafted_tokens * 9 / 10);
  for (int32_t place = 0; place < kPlaces; ++place) expect_law(heard, place, all[0]);
}

// An end of generation is offered like any token: withholding it would change its probability.
TEST(EngineRejection, EndsAreAsFrequentAsTheyAre) {
  constexpr int32_t kAnswers = 12'000;
  std::vector<Request> all;
  for (uint64_t i = 1; i <= kAnswers; ++i) {
    Request r = request(i, 91 * i, 3);
    r.sampling.logit_bias = {{kFakeEnd, 9.0F}};
    all.push_back(r);
  }
  expect_law(answers(all, 0.4F, 1), 1, all[0]);
}

// With the number of drafts and the draft model fixed: the same bytes alone, in company, and in steps without any time
// to spare. A draft model equal to the target is never rejected; temperature 0 and no drafts give the bytes of plain
// decoding.
TEST(EngineRejection, ReplaysToTheByteWhereDraftsArePinned) {
  std::vector<Request> all;
  for (uint64_t i = 1; i <= 12; ++i) all.push_back(request(i, i, 20));
  const Answers together = answers(all, 0.6F, 4), again = answers(all, 0.6F, 4, 5, 1e-6);
  EXPECT_EQ(together.tokens, again.tokens);
  for (const Request& r : all) {
    const auto id = static_cast<uint64_t>(r.id);
    EXPECT_EQ(answers({r}, 0.6F, 4).tokens[id], together.tokens.at(id));
  }
  EXPECT_NE(answers(all, 0.6F, 3).tokens, together.tokens);
  const Answers itself = answers(all, 1, 4);
  EXPECT_GT(itself.stats.drafted_tokens, 50);
  EXPECT_GE(itself.stats.accepted_tokens + 12,
            itself.stats.drafted_tokens);  // except drafts after an end of generation
  for (Request& r : all) {
    if (static_cast<uint64_t>(r.id) % 2 == 0) r.sampling.temperature = 0;
    if (static_cast<uint64_t>(r.id) % 2 == 1) r.speculation.max_drafts = 0;
  }
  const Answers plain = answers(all, 0.6F, 4);
  for (const Request& r : all)
    EXPECT_EQ(plain.tokens.at(static_cast<uint64_t>(r.id)), testing::expected_answer(r, 0, kContext).tokens);
}

// Typical acceptance is pinned like rejection. It accepts more drafts and gives other answers.
TEST(EngineRejection, TypicalAcceptanceReplaysToTheByteAndIsNotExact) {
  std::vector<Request> all, rejected;
  for (uint64_t i = 1; i <= 12; ++i) {
    all.push_back(request(i, i, 20));
    rejected.push_back(all.back());
    all.back().speculation.verifier = Verifier::kTypical;
  }
  const Answers together = answers(all, 0.3F, 4), again = answers(all, 0.3F, 4, 5, 1e-6);
  EXPECT_EQ(together.tokens, again.tokens);
  for (const Request& r : all)
    EXPECT_EQ(answers({r}, 0.3F, 4).tokens.begin()->second, together.tokens.at(static_cast<uint64_t>(r.id)));
  const auto part = [](const Answers& a) {
    return static_cast<double>(a.stats.accepted_tokens) / static_cast<double>(a.stats.drafted_tokens);
  };
  EXPECT_GT(part(together), part(answers(rejected, 0.3F, 4)));
  int32_t n_other = 0;
  for (const Request& r : all) {
    const auto plain = testing::expected_answer(r, 0, kContext).tokens;
    n_other += together.tokens.at(static_cast<uint64_t>(r.id)) != plain;
  }
  EXPECT_GT(n_other, 6);
  for (Request& r : all) r.sampling.temperature = 0;
  const Answers best = answers(all, 0.3F, 4);
  for (const Request& r : all)
    EXPECT_EQ(best.tokens.at(static_cast<uint64_t>(r.id)), testing::expected_answer(r, 0, kContext).tokens);
}

// XTC that keeps only the least likely token, whose probability may be 0: with drafts to verify, no token was drawn in
// this case once.
TEST(EngineRejection, ImpossibleTokenIsNoTopChoice) {
  for (const Verifier verifier : {Verifier::kCoupled, Verifier::kRejection, Verifier::kTypical}) {
    Request r = request(1, 1, 20);
    r.sampling.temperature = 0.7F;
    r.sampling.top_k = 0;
    r.sampling.ignore_eos = true;
    r.sampling.xtc_probability = 1;
    r.sampling.xtc_threshold = 0;
    r.sampling.logit_bias = {{TokenId{5}, -300.0F}};
    r.speculation.verifier = verifier;
    const std::vector<TokenId> answer = answers({r}, 0.6F, 4).tokens[1];
    EXPECT_EQ(answer.size(), 20u);
    EXPECT_EQ(std::ranges::count(answer, TokenId{5}), 0);
  }
}

// ---- trees ---------------------------------------------------------------------------------------------------------

enum class Scheme : uint8_t { kIndependent, kDistinct, kCertain };

// Trees drawn from Near's distributions: after each draft of a level as many as the next level has, independent draws,
// distinct ones or the likeliest.
class Forking final : public Proposer {
 public:
  Forking(float part, std::vector<int32_t> widths, Scheme scheme)
      : part_(part), widths_(std::move(widths)), scheme_(scheme) {}
  void begin_step(const StepPrices&) override { q_.clear(); }
  void propose(const ProposalInput& input, Drafts& drafts) override {
    const bool is_drawn = scheme_ != Scheme::kCertain && input.temperature > 0;
    std::vector<int32_t> level = {-1};
    for (const int32_t width : widths_) {
      std::vector<int32_t> next;
      for (const int32_t parent : level) {
        for (const TokenId token : following(parent, width, input, drafts)) {
          if (drafts.size() == input.max_drafts) return;
          next.push_back(drafts.size());
          drafts.add(token, parent, 1, is_drawn ? std::span<const float>(q_.back()) : std::span<const float>(),
                     scheme_ == Scheme::kDistinct);
        }
      }
      level = next;
    }
  }

 private:
  std::vector<TokenId> following(int32_t parent, int32_t width, const ProposalInput& input, const Drafts& drafts) {
    std::vector<TokenId> answer;
    for (int32_t i = parent; i >= 0; i = drafts.parents[static_cast<size_t>(i)])
      answer.insert(answer.begin(), drafts.tokens[static_cast<size_t>(i)]);
    answer.insert(answer.begin(), input.answer.begin(), input.answer.end());
    uint64_t hash = testing::mix(77, 0);
    for (const TokenId t : input.prompt) hash = testing::mix(hash, static_cast<uint64_t>(raw(t)));
    for (const TokenId t : answer) hash = testing::mix(hash, static_cast<uint64_t>(raw(t)));
    std::vector<float> logits(kFakeVocabSize);
    testing::fake_logits(hash, logits);
    blur(logits, input.prompt.size() + answer.size() - 1, part_);
    q_.emplace_back(kFakeVocabSize);
    ProposeRule rule(q_.back(), width, scheme_ == Scheme::kDistinct);
    SamplerState state = input.state;
    EXPECT_TRUE(input.sampler->sample(logits, {input.prompt, answer}, state, scratch_, {}, &rule).ok());
    if (scheme_ != Scheme::kCertain && input.temperature > 0) return {rule.drawn().begin(), rule.drawn().end()};
    std::vector<TokenId> out;
    for (int32_t i = 0; i < width; ++i) {
      const auto best = std::ranges::max_element(logits);
      out.push_back(TokenId{static_cast<int32_t>(best - logits.begin())});
      *best = -INFINITY;
    }
    return out;
  }
  float part_;
  std::vector<int32_t> widths_;
  Scheme scheme_;
  std::list<std::vector<float>> q_;  // of this step
  SamplerScratch scratch_;
};

class EngineRejectionTrees : public ::testing::TestWithParam<Scheme> {
 protected:
  static Answers of(const std::vector<Request>& requests, int32_t k, int32_t n_places = 8) {
    return answers(
        requests,
        [](Stream&) {
          return std::make_unique<Forking>(0.6F, std::vector{3, 2}, GetParam());
        },
        k, n_places);
  }
};

// Row S14: three drafts for one place and two after each.
TEST_P(EngineRejectionTrees, AnswersHaveTheTargetsLaw) {
  constexpr int32_t kAnswers = 12'000, kPlaces = 3;
  std::vector<Request> all;
  for (uint64_t i = 1; i <= kAnswers; ++i) all.push_back(request(i, 77 * i, 8));  // an end leaves less room
  const Answers heard = of(all, 9), chains = answers(all, 0.6F, 2);
  const auto of_first = [](const Answers& a) {
    return static_cast<double>(a.stats.accepted_at[0]) / static_cast<double>(a.stats.n_drafts);
  };
  EXPECT_GT(of_first(heard), GetParam() == Scheme::kCertain ? 0.1 : of_first(chains) + 0.05);
  for (int32_t place = 0; place < kPlaces; ++place) expect_law(heard, place, all[0]);
}

TEST_P(EngineRejectionTrees, ReplayToTheByte) {
  std::vector<Request> all;
  for (uint64_t i = 1; i <= 12; ++i) all.push_back(request(i, i, 20));
  const Answers together = of(all, 9), again = of(all, 9, 5);
  EXPECT_EQ(together.tokens, again.tokens);
  for (const Request& r : all) {
    const auto id = static_cast<uint64_t>(r.id);
    EXPECT_EQ(of({r}, 9).tokens[id], together.tokens.at(id));
  }
  // Seconds and thirds are right too, and so is what is after them.
  all.clear();
  for (uint64_t i = 1; i <= 60; ++i) {
    all.push_back(request(i, i, 20));
    all.back().prompt[1] = TokenId{static_cast<int32_t>(i)};
    all.back().sampling.temperature = 0;
  }
  const Answers plain = of(all, 9);
  EXPECT_GT(plain.stats.accepted_tokens, 100);
  for (const Request& r : all)
    EXPECT_EQ(plain.tokens.at(static_cast<uint64_t>(r.id)), testing::expected_answer(r, 0, kContext).tokens);
}

INSTANTIATE_TEST_SUITE_P(Schemes, EngineRejectionTrees,
                         ::testing::Values(Scheme::kIndependent, Scheme::kDistinct, Scheme::kCertain),
                         [](const auto& of) {
                           return of.param == Scheme::kIndependent ? "independent"
                                  : of.param == Scheme::kDistinct  ? "distinct"
                                                                   : "certain";
                         });

}  // namespace
}  // namespace ibid
