// Drafts in the engine: when there are any, their cost, their counters. tests/property and tests/sim show that they
// change no byte.
#include <gtest/gtest.h>

#include <tuple>

#include "fake_model.h"
#include "spec/experimental/store_proposer.h"
#include "spec/lookup/free_proposers.h"
#include "spelled_tokens.h"
#include "text/output/stop_matcher.h"
#include "timed_model.h"

namespace ibid {
namespace {

using testing::ExpectedAnswer;
using testing::FakeModel;
using testing::TimedEngine;

// Proposes the same token forever, each with this probability given the one before it; a timed model always draws 1.
class FixedDrafts final : public Proposer {
 public:
  FixedDrafts(TokenId token, float likely) : token_(token), likely_(likely) {}
  void propose(const ProposalInput& input, Drafts& drafts) override {
    float likely = 1;
    for (int32_t i = 0; i < input.max_drafts; ++i) drafts.add(token_, i - 1, likely *= likely_);
  }

 private:
  TokenId token_;
  float likely_;
};

EngineOptions speculating(int32_t max_drafts = 8) {
  EngineOptions options;
  options.max_drafts = max_drafts;
  return options;
}

// A stream's tokens, and the look-up's drafts for them.
struct Text {
  const char* name;
  int32_t (*next)(int32_t position);
};
constexpr Text kTexts[] = {
    {"one token again and again", [](int32_t) { return 1; }},
    {"a sentence of 23 tokens again and again", [](int32_t i) { return i % 23 + 1; }},
    {"four tokens at random", [](int32_t i) { return static_cast<int32_t>(testing::mix(7, uint64_t(i)) % 4); }},
    {"sixty tokens at random", [](int32_t i) { return static_cast<int32_t>(testing::mix(7, uint64_t(i)) % 60); }},
    {"what is about to repeat itself, and does not",
     [](int32_t i) { return i % 4 == 3 ? 10 + static_cast<int32_t>(testing::mix(3, uint64_t(i)) % 50) : i % 4; }},
    {"a sentence with an error now and then",
     [](int32_t i) { return testing::mix(5, uint64_t(i)) % 9 == 0 ? 40 : i % 17 + 1; }},
};

// A sequence's next token has probability .99 at temperature .7, and .86 at 1.
constexpr float kPeak = 6;

double seconds_of(const Text& text, int32_t n_streams, int32_t max_drafts, EngineStats* stats = nullptr,
                  float temperature = 0) {
  TimedEngine t(speculating(max_drafts), {}, 8192, text.next, kPeak);
  for (int32_t i = 0; i < n_streams; ++i) {
    Request r = t.request(40, 200);
    r.sampling.temperature = temperature;
    t.submit(std::move(r));
  }
  t.drain();
  if (stats != nullptr) *stats = t.engine->stats();
  return t.clock.now();
}

// Row S27, on a virtual clock: a sweep of sequences, loads and temperatures.
TEST(Speculation, IsNeverSlowerThanNone) {
  for (const Text& text : kTexts) {
    for (const int32_t n_streams : {1, 2, 4, 8, 16, 32}) {
      for (const float temperature : {0.0F, 0.7F, 1.0F}) {
        const double with = seconds_of(text, n_streams, 8, nullptr, temperature);
        const double ratio = with / seconds_of(text, n_streams, 0, nullptr, temperature);
        EXPECT_LE(ratio, 1.03) << text.name << ", " << n_streams << " streams, T = " << temperature;
      }
    }
  }
}

TEST(Speculation, RepeatedTextTakesFewerSteps) {
  EngineStats with, without;
  const double ratio = seconds_of(kTexts[1], 1, 8, &with) / seconds_of(kTexts[1], 1, 0, &without);
  EXPECT_LT(ratio, 0.7);
  EXPECT_LT(3 * with.n_steps, without.n_steps);
  EXPECT_EQ(with.n_steps + with.accepted_tokens, without.n_steps);
}

TEST(Speculation, ManyStreamsHaveFewerDraftsAndThenNone) {
  double before = 1e9;
  for (const int32_t n_streams : {1, 3, 32}) {
    TimedEngine t(speculating());
    t.engine->speculate(std::make_unique<FixedDrafts>(TokenId{2}, 0.9F), 8);
    for (int32_t i = 0; i < n_streams; ++i) t.submit(20, 60);
    t.drain();
    const double of_stream = static_cast<double>(t.engine->stats().drafted_tokens) / n_streams;
    EXPECT_LT(of_stream, before);
    before = of_stream;
  }
  EXPECT_LT(before, 0.5);  // until the first steps have measured the cost of rows
}

TEST(Speculation, KeepsWithinTheTimeBetweenTokens) {
  for (const double bound : {0.005, 0.0065, 0.009}) {
    EngineOptions options = speculating();
    options.max_itl = bound;
    TimedEngine t(options);
    t.submit(40, 400);
    t.drain();
    const std::vector<double> gaps = t.gaps(0.2);
    EXPECT_LE(gaps.back(), bound * 1.02);  // the cost of a row and of its reads are learned separately
    EXPECT_GT(t.engine->stats().drafted_tokens, 50);
  }
}

TEST(Speculation, TakesNoTimeFromPrompts) {
  const auto first_token = [](int32_t max_drafts) {
    TimedEngine t(speculating(max_drafts));
    for (int i = 0; i < 4; ++i) t.submit(40, 4000);
    for (int i = 0; i < 60; ++i) t.step();
    const RequestId newcomer = t.submit(3000, 1);
    while (t.seen[newcomer].tokens.empty()) t.step();
    return t.seen[newcomer].ttft();
  };
  EXPECT_LE(first_token(8), first_token(0) * 1.05);
}

TEST(Speculation, RequestLimitsItsDrafts) {
  const auto drafted = [](int32_t max_drafts) {
    TimedEngine t(speculating());
    Request r = t.request(20, 100);
    r.speculation.max_drafts = max_drafts;
    t.submit(std::move(r));
    int64_t most = 0, before = 0;
    while (t.step()) {
      const int64_t now = t.engine->stats().drafted_tokens;
      most = std::max(most, now - std::exchange(before, now));
    }
    return most;
  };
  EXPECT_EQ(drafted(0), 0);
  EXPECT_EQ(drafted(2), 2);
  EXPECT_EQ(drafted(-1), drafted(8));
  EXPECT_EQ(drafted(60), drafted(8));
}

// A proposer that reads hidden states and records the sequences.
class Reading final : public Proposer, public ProposerExtras {
 public:
  explicit Reading(std::set<int64_t>& asked, std::set<int64_t>& seen) : asked_(asked), seen_(seen) {}
  bool reads_hidden() const override { return true; }
  void saw(int64_t sequence, int32_t, std::span<const float>) override { seen_.insert(sequence); }
  ProposerExtras* extras() override { return this; }
  void propose(const ProposalInput& input, Drafts& drafts) override {
    asked_.insert(input.sequence);
    drafts.add(TokenId{2}, -1, 0.99F);
  }

 private:
  std::set<int64_t>&asked_, &seen_;
};

// In the same steps as a request that takes all proposers.
TEST(Speculation, RequestMayUseTheFreeProposersAlone) {
  for (const bool repeats : {false, true}) {
    std::set<int64_t> asked, seen;
    TimedEngine t(speculating(), {}, 8192, (repeats ? kTexts[1] : kTexts[3]).next);
    t.engine->speculate(free_proposers(t.engine->facts(), 4, std::make_unique<Reading>(asked, seen)), 8);
    Request r = t.request(40, 100);
    r.speculation.free_alone = true;
    const RequestId free = t.submit(std::move(r));
    t.drain();
    EXPECT_TRUE(asked.empty());
    EXPECT_TRUE(seen.empty());
    EXPECT_EQ(t.engine->stats().accepted_tokens > 40, repeats);  // the look-up's
    r = t.request(40, 100);
    r.speculation.free_alone = true;
    t.submit(std::move(r));
    const RequestId all = t.submit(40, 100);
    t.drain();
    EXPECT_EQ(asked.size(), 1u);
    EXPECT_LE(seen.size(), 1u);
    EXPECT_EQ(t.seen[free].tokens.size(), t.seen[all].tokens.size());
  }
}

TEST(Speculation, FollowsWhatAClientPredicts) {
  const auto steps = [](bool predicts) {
    TimedEngine t(speculating(), {}, 8192,
                  [](int32_t i) { return static_cast<int32_t>(testing::mix(9, uint64_t(i)) % 60); });
    Request r = t.request(20, 60);
    for (int32_t i = 20; predicts && i < 80; ++i)
      r.speculation.prediction.push_back(TokenId{static_cast<int32_t>(testing::mix(9, uint64_t(i - 1)) % 60)});
    t.submit(std::move(r));
    t.drain();
    return t.engine->stats().n_steps;
  };
  EXPECT_LT(2 * steps(true), steps(false));
}

// ---- counting, and ends ---------------------------------------------------------------------------------------------

// Proposes the expected answer, with an error at every `wrong_each`th place.
class Knowing final : public Proposer {
 public:
  Knowing(std::vector<TokenId> answer, size_t wrong_each) : answer_(std::move(answer)), wrong_each_(wrong_each) {}
  void propose(const ProposalInput& input, Drafts& drafts) override {
    for (int32_t i = 0; i < input.max_drafts; ++i) {
      const size_t at = input.answer.size() + static_cast<size_t>(i);
      const bool is_right = at < answer_.size() && (at + 1) % wrong_each_ != 0;
      const TokenId right = at < answer_.size() ? answer_[at] : TokenId{5};
      drafts.add(is_right ? right : TokenId{(raw(right) + 1) % testing::kFakeVocabSize}, i - 1);
    }
  }

 private:
  std::vector<TokenId> answer_;
  size_t wrong_each_;
};

struct Heard {
  std::vector<TokenId> tokens;
  std::string text;
  FinishReason reason = FinishReason::kNone;
  Usage usage;
};

// Token i is a letter, so that stops are of several tokens, each spelled in many ways; the end has no sequence.
std::string letter(TokenId token) {
  return token == testing::kFakeEnd ? "" : std::string(1, static_cast<char>('a' + raw(token) % 5));
}
std::shared_ptr<const Tokenizer> letters() {
  std::vector<std::string> tokens;
  for (int32_t i = 0; i < testing::kFakeVocabSize; ++i) tokens.push_back(letter(TokenId{i}));
  return std::make_shared<const SpelledTokens>(std::move(tokens));
}

// The answer as its stops cut it, and its sequence.
std::string cut_at_stop(const Request& request, ExpectedAnswer& answer) {
  std::string text;
  for (size_t i = 0; i < answer.tokens.size(); ++i) {
    text += letter(answer.tokens[i]);
    if (request.stops == nullptr || answer.tokens[i] == testing::kFakeEnd) continue;
    size_t begin = std::string::npos;
    for (const std::string& stop : request.stops->strings()) begin = std::min(begin, text.find(stop));
    if (begin == std::string::npos && !request.stops->is_stop(answer.tokens[i])) continue;
    answer.tokens.resize(i + 1);
    answer.reason = FinishReason::kStop;
    return request.stops->is_stop(answer.tokens[i]) ? text.substr(0, text.size() - 1) : text.substr(0, begin);
  }
  return text;
}

// Each step yields one token plus the right drafts; wrong drafts leave no trace.
Heard answer(const Request& request, int32_t k, size_t wrong_each, int32_t context_len) {
  ThreadTeam team(1);
  Stream stream(team);
  EngineOptions options;
  options.block_len = 8;
  options.max_sequences = 2;
  options.max_rows = 20;
  ExpectedAnswer expected = testing::expected_answer(request, 0, context_len);
  const std::vector<TokenId> without_stops = expected.tokens;
  const std::string text = cut_at_stop(request, expected);
  auto model = std::make_unique<FakeModel>(context_len);
  const FakeModel& fake = *model;
  auto engine = Engine::create(std::move(model), letters(), stream, options, steady_clock()).value();
  if (k > 0) engine->speculate(std::make_unique<Knowing>(without_stops, wrong_each), k);
  EXPECT_TRUE(engine->submit(request).ok());
  Heard heard;
  std::vector<Output> outputs;
  int64_t n_draws = 0;
  while (engine->step(outputs)) {
    const EngineStats stats = engine->stats();
    for (const Output& o : outputs) {
      n_draws += !o.tokens.empty();
      for (const TokenRecord& t : o.tokens) heard.tokens.push_back(t.chosen.token);
      heard.text += o.text;
      if (o.finished) heard.reason = o.reason, heard.usage = o.usage;
    }
    outputs.clear();
    if (const Sequence* s = engine->find(request.id, 0)) {
      EXPECT_LE(static_cast<int32_t>(s->place.blocks().size()), engine->cache().n_blocks_for(s->n_tokens() + 1));
      EXPECT_LE(s->n_computed(), s->n_tokens() - 1 + (s->n_answered() == 0));
    }
    engine->self_check();
    // A draft may be the end; tokens drawn after it do not count.
    const bool ends_with_draft = stats.accepted_tokens > static_cast<int64_t>(heard.tokens.size()) - n_draws;
    EXPECT_EQ(stats.accepted_tokens, static_cast<int64_t>(heard.tokens.size()) - n_draws + ends_with_draft);
    const bool has_end = heard.reason == FinishReason::kEos || heard.reason == FinishReason::kStop;
    EXPECT_TRUE(!ends_with_draft || has_end) << finish_reason_name(heard.reason);
    EXPECT_LE(stats.accepted_tokens, stats.drafted_tokens);
  }
  EXPECT_EQ(heard.tokens, expected.tokens);
  EXPECT_EQ(heard.reason, expected.reason);
  EXPECT_EQ(heard.text, text);
  EXPECT_EQ(heard.usage.completion_tokens, static_cast<int32_t>(expected.tokens.size()));
  EXPECT_EQ(heard.usage.accepted_tokens, engine->stats().accepted_tokens);
  EXPECT_EQ(heard.usage.drafted_tokens, engine->stats().drafted_tokens);
  int64_t by_place = 0;
  for (const int64_t n : engine->stats().accepted_at) by_place += n;
  EXPECT_EQ(by_place, heard.usage.accepted_tokens);
  EXPECT_TRUE(fake.faults().empty()) << fake.faults().front();
  EXPECT_EQ(engine->cache().pool().n_in_use(), 0);
  return heard;
}

// Another end of the answer: none, a token of it, or the text of three of its tokens.
std::shared_ptr<const StopSet> stops_of(const Request& request, int32_t kind, int32_t context_len) {
  const std::vector<TokenId> answer = testing::expected_answer(request, 0, context_len).tokens;
  const size_t at = std::min(answer.size() - 1, size_t{4} + request.sampling.seed % 7);
  if (kind == 0) return nullptr;
  if (kind == 1) return StopSet::compile({}, {answer[at]}).value();
  std::string spelled = "zzz";
  if (at >= 2) spelled = letter(answer[at - 2]) + letter(answer[at - 1]) + letter(answer[at]);
  return StopSet::compile({spelled, "zz"}).value();
}

// Every kind of end, at every place among the drafts: limit, context, end of generation, stop id, stop string.
TEST(Speculation, AnEndInsideDraftsIsTheSameEnd) {
  std::set<FinishReason> reasons;
  for (uint64_t seed = 1; seed <= 12; ++seed) {
    Request r;
    r.id = RequestId{1};
    for (uint64_t i = 0; i < 5 + seed; ++i)
      r.prompt.push_back(TokenId{static_cast<int32_t>(1 + testing::mix(seed, i) % 60)});
    r.sampling.seed = seed;
    r.sampling.temperature = seed % 3 == 0 ? 0.0F : 0.9F;
    r.max_tokens = seed % 2 == 0 ? -1 : static_cast<int32_t>(seed + 2);
    for (int32_t kind = 0; kind < 3; ++kind) {
      r.stops = stops_of(r, kind, 40);
      for (int32_t k = 1; k <= 8; k += 1 + (kind > 0)) {
        for (const size_t wrong_each : {size_t{3}, size_t{5}, size_t{1000}}) {
          reasons.insert(answer(r, k, wrong_each, 40).reason);
          if (HasFailure()) return;
        }
      }
    }
  }
  EXPECT_GE(reasons.size(), 3u);
}

// Counts forget() calls.
class Forgetting final : public Proposer {
 public:
  explicit Forgetting(int64_t& n) : n_(n) {}
  void propose(const ProposalInput&, Drafts&) override {}
  void forget(int64_t) override { ++n_; }

 private:
  int64_t& n_;
};

// State of a choice that has ended (entries, keys and values) is released before the last choice ends.
TEST(Speculation, AChoiceThatEndedIsForgottenAtOnce) {
  ThreadTeam team(1);
  Stream stream(team);
  EngineOptions options;
  options.kv_bytes = 4 << 20;
  auto engine = Engine::create(std::make_unique<FakeModel>(256), nullptr, stream, options, steady_clock()).value();
  int64_t n_forgotten = 0, n_ended = 0;
  engine->speculate(std::make_unique<Forgetting>(n_forgotten), 4);
  Request r;
  r.id = RequestId{1};
  r.prompt = {TokenId{3}};
  r.n = 8;
  r.sampling.seed = 5;
  ASSERT_TRUE(engine->submit(std::move(r)).ok());
  std::vector<Output> outputs;
  int32_t n_parts = 0;
  while (engine->step(outputs)) {
    const auto n = std::ranges::count_if(outputs, &Output::finished);
    n_ended += n;
    n_parts += n > 0;
    EXPECT_EQ(n_forgotten, n_ended);
    outputs.clear();
  }
  EXPECT_EQ(n_ended, 8);
  EXPECT_GT(n_parts, 2) << "all ended at once";
}

// An engine that drafts from the sequence itself and from its tenants' earlier answers, or from neither.
struct KeepingEngine : TimedEngine {
  explicit KeepingEngine(const Text& text, bool keeps = true, EngineOptions options = speculating())
      : TimedEngine(options, {}, 8192, text.next) {
    if (!keeps) return;
    auto stores = std::make_unique<StoreProposer>(nullptr, std::make_unique<OwnAnswers>(OwnAnswers::kLeastBytes),
                                                  StoreProposerOptions{});
    engine->speculate(free_proposers(engine->facts(), options.max_sequences, nullptr, std::move(stores)), 8);
  }
  Request request_of(const std::string& tenant) {
    Request r = request(40, 200);
    r.tenant = tenant;
    return r;
  }
  // How many steps it takes.
  int64_t answer(Request r) {
    const int64_t before = engine->stats().n_steps;
    submit(std::move(r));
    drain();
    return engine->stats().n_steps - before;
  }
};

TEST(Speculation, EarlierAnswersTakeFewerSteps) {
  KeepingEngine t(kTexts[3]);
  const int64_t first = t.answer(t.request_of("a"));
  EXPECT_LT(t.answer(t.request_of("a")), 2 * first / 3);
}

// Answers that were cut short, belong to a search or take no drafts are not stored.
TEST(Speculation, KeepsAnswersThatEndedAlone) {
  KeepingEngine t(kTexts[3]);
  const int64_t first = t.answer(t.request_of("a"));
  KeepingEngine u(kTexts[3]);
  Request silent = u.request_of("a");
  silent.speculation.max_drafts = 0;
  u.answer(silent);
  const RequestId cut = u.submit(u.request_of("a"));
  for (int i = 0; i < 150; ++i) u.step();
  u.engine->cancel(cut);
  u.drain();
  EXPECT_EQ(u.answer(u.request_of("a")), first);
}

// No draft and no microsecond of one tenant's answer depends on another tenant's answers.
TEST(Speculation, AnswersOfOneTenantChangeNothingForAnother) {
  const auto of_b = [](bool is_kept) {
    KeepingEngine t(kTexts[3]);
    Request of_a = t.request_of("a");
    if (!is_kept) of_a.speculation.max_drafts = 1;  // so that both are priced alike
    of_a.cache_salt = is_kept ? "" : "other";
    t.answer(of_a);
    const double begin = t.clock.now();
    const int64_t drafted = t.engine->stats().drafted_tokens;
    const int64_t n_steps = t.answer(t.request_of("b"));
    return std::tuple(n_steps, t.engine->stats().drafted_tokens - drafted, t.clock.now() - begin);
  };
  KeepingEngine alone(kTexts[3]);
  const int64_t n_steps = alone.answer(alone.request_of("b"));
  EXPECT_EQ(std::get<0>(of_b(true)), n_steps);
  EXPECT_EQ(of_b(true), of_b(false));
}

// Row S27 with stored answers: sequences that repeat earlier answers, and sequences that do not.
TEST(Speculation, KeepingAnswersIsNeverSlowerThanNone) {
  for (const Text& text : kTexts) {
    for (const int32_t n_streams : {1, 4, 16}) {
      const auto seconds = [&](bool speculates) {
        KeepingEngine t(text, speculates, speculating(speculates ? 8 : 0));
        for (int round = 0; round < 3; ++round) {
          for (int32_t i = 0; i < n_streams; ++i) t.submit(t.request(40 + 7 * round, 200));
          t.drain();
        }
        return t.clock.now();
      };
      EXPECT_LE(seconds(true) / seconds(false), 1.03) << text.name << ", " << n_streams << " streams";
    }
  }
}

}  // namespace
}  // namespace ibid
