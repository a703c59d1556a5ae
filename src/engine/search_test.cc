// Searches on the model whose cells record their contents: the results equal exhaustive search, and have the same bytes
// alone, in company, preempted, and with any number of threads. Results of transformers: tests/property/search_test.cc.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <functional>
#include <random>

#include "engine/engine.h"
#include "fake_model.h"
#include "found_texts.h"
#include "sample/grammar/languages.h"
#include "sample/grammar/matcher.h"

namespace ibid {
namespace {

using testing::FakeModel;
using testing::found_texts;
using testing::FoundText;
using testing::FoundTexts;
using testing::kFakeEnd;

constexpr int32_t kContext = 64;

// All sequences of the allowed tokens that end, or are as long as may be, with the sums of their log-probabilities.
void each_text(const Request& r, uint64_t hash, std::vector<TokenId>& text, double sum,
               const std::function<void(const std::vector<TokenId>&, double)>& visit) {
  std::vector<float> logits(testing::kFakeVocabSize);
  testing::fake_logits(hash, logits);
  double total = 0;
  for (const float logit : logits) total += std::exp(static_cast<double>(logit));
  for (const TokenId t : r.sampling.allowed) {
    text.push_back(t);
    const double with = sum + static_cast<double>(logits[static_cast<size_t>(raw(t))]) - std::log(total);
    if (t == kFakeEnd || static_cast<int32_t>(text.size()) == r.max_tokens) {
      visit(text, with);
    } else {
      each_text(r, testing::mix(hash, static_cast<uint64_t>(raw(t))), text, with, visit);
    }
    text.pop_back();
  }
}

struct World {
  int32_t n_blocks = 200;
  int32_t max_sequences = 8;
  int32_t step_tokens = 24;
  int n_threads = 1;
  uint64_t preempts = 0;  // a seed; 0: no preemption by the test
  int32_t n_states = 0;   // of a model with recurrent layers; 0: it has none
};

FoundTexts run_on_fake(const std::vector<Request>& requests, const World& world) {
  ThreadTeam team(world.n_threads);
  Stream stream(team);
  ManualClock clock;
  EngineOptions options{
      .block_len = 8, .kv_dtype = DType::kF32, .step_tokens = world.step_tokens, .max_sequences = world.max_sequences};
  auto fake = std::make_unique<FakeModel>(kContext, 0, 0, world.n_states > 0);
  const FakeModel& model = *fake;
  options.states_bytes = world.n_states * fake->facts().state_bytes;
  options.state_step = 5;
  options.kv_bytes = world.n_blocks * KvStore::block_bytes(fake->facts(), options.kv_dtype, options.block_len);
  std::unique_ptr<Engine> engine = Engine::create(std::move(fake), nullptr, stream, options, clock).value();
  std::vector<Output> out;
  std::mt19937_64 random(world.preempts);
  size_t next = 0;
  for (int step = 0; step < 20000; ++step) {
    if (next < requests.size() && (world.preempts == 0 || step % 2 == 0)) {
      const Status taken = engine->submit(requests[next++]);
      EXPECT_TRUE(taken.ok()) << taken.error().message;
    }
    if (world.preempts != 0 && !requests.empty())
      engine->preempt(requests[random() % requests.size()].id, static_cast<int32_t>(random() % 6));
    if (!engine->step(out) && next == requests.size()) break;
    if (step % 16 == 0) engine->self_check();
  }
  FoundTexts answers = found_texts(out);
  EXPECT_TRUE(model.faults().empty()) << model.faults().front();
  engine->self_check();
  EXPECT_EQ(engine->cache().pool().n_in_use(), 0) << "blocks outlive their searches";
  EXPECT_EQ(engine->cache().states().pool(Tier::kDevice).n_in_use(), 0) << "states outlive their searches";
  EXPECT_EQ(engine->stats().n_running + engine->stats().n_waiting, 0);
  return answers;
}

TEST(Search, OfFullWidthFindsTheBestOfAllSequences) {
  for (uint64_t id = 1; id <= 60; ++id) {
    Request r;
    r.id = RequestId{id};
    for (uint64_t i = 0; i < 3 + id % 9; ++i)
      r.prompt.push_back(TokenId{1 + static_cast<int32_t>(testing::mix(id, i) % 63)});
    for (int32_t k = 0; k < 4; ++k) r.sampling.allowed.push_back(TokenId{k});
    r.max_tokens = 4;
    r.n = 7;
    r.sampling.logprobs = 0;
    const float penalty = std::array{0.0f, 1.0f, 2.0f}[id % 3];
    r.search = {.kind = SearchKind::kBeam,
                .width = 64,
                .length_penalty = penalty,
                .early_stopping = id % 2 == 0 ? EarlyStopping::kNever : EarlyStopping::kNo};
    std::vector<std::pair<double, std::vector<TokenId>>> all;
    uint64_t hash = testing::mix(77, 0);
    for (const TokenId t : r.prompt) hash = testing::mix(hash, static_cast<uint64_t>(raw(t)));
    std::vector<TokenId> text;
    each_text(r, hash, text, 0, [&](const std::vector<TokenId>& tokens, double sum) {
      all.emplace_back(sum / std::pow(static_cast<double>(tokens.size()), static_cast<double>(penalty)), tokens);
    });
    std::ranges::sort(all, [](const auto& a, const auto& b) { return a.first > b.first; });
    const FoundTexts found = run_on_fake({r}, {});
    for (int32_t i = 0; i < r.n; ++i) {
      const FoundText& got = found.at({r.id, i});
      EXPECT_NEAR(got.score, all[static_cast<size_t>(i)].first, 1e-3) << "request " << id << ", text " << i;
      EXPECT_EQ(got.tokens, all[static_cast<size_t>(i)].second) << "request " << id << ", text " << i;
      EXPECT_EQ(got.reason, got.tokens.back() == kFakeEnd ? FinishReason::kEos : FinishReason::kLength);
      EXPECT_EQ(got.logprobs.size(), got.tokens.size());
    }
  }
}

// A grammar of tokens 1 to 9 as the digits.
std::shared_ptr<grammar::Compiled> digits_grammar() {
  static const auto made = [] {
    std::vector<std::string> words(testing::kFakeVocabSize);
    for (size_t t = 1; t < words.size(); ++t)
      words[t] = t < 10    ? std::string(1, static_cast<char>('0' + t))
                 : t == 10 ? "("
                 : t == 11 ? ")"
                           : "x" + std::string(t, 'y');
    auto trie = std::make_shared<const grammar::TokenTrie>(std::vector<std::string_view>(words.begin(), words.end()));
    constexpr const char* kText = "root ::= \"(\" (root | [1-9]{2,5}) \")\"";
    grammar::Fuel fuel;
    grammar::Grammar rules(fuel);
    EXPECT_TRUE(grammar::read_gbnf(kText, {}, rules).ok());
    return std::make_shared<grammar::Compiled>(grammar::Source{.language = grammar::Language::kGbnf, .text = kText},
                                               grammar::compile(rules, *trie).value(), trie, 1 << 12);
  }();
  return made;
}

Request mixed_request(uint64_t id) {
  Request r;
  r.id = RequestId{id};
  for (uint64_t i = 0; i < 3 + id % 23; ++i)
    r.prompt.push_back(TokenId{1 + static_cast<int32_t>(testing::mix(id % 4, i) % 63)});
  r.max_tokens = 5 + static_cast<int32_t>(id % 11);
  r.sampling.logprobs = 0;
  r.sampling.seed = id;
  if (id % 3 == 0) return r;
  r.search = {.kind = SearchKind::kBeam,
              .width = 2 + static_cast<int32_t>(id % 5),
              .length_penalty = static_cast<float>(id % 3),
              .early_stopping = static_cast<EarlyStopping>(id % 3)};
  r.n = 1 + static_cast<int32_t>(id % 2);
  if (id % 5 == 2) r.search = {.kind = SearchKind::kBeam, .width = 4, .n_groups = 2, .diversity_penalty = 0.5f};
  if (id % 5 == 3) r.search.scores_whole = true;
  if (id % 4 == 1)
    r.grammar = std::make_shared<grammar::Matcher>(digits_grammar(), std::vector<TokenId>{kFakeEnd}, r.search.width);
  return r;
}

std::vector<Request> mixed_requests() {
  std::vector<Request> all;
  for (uint64_t id = 1; id <= 24; ++id) all.push_back(mixed_request(id));
  return all;
}

TEST(Search, SequencesAreTheSameAloneInCompanyAndHoweverOftenTheirBlocksAreTaken) {
  FoundTexts alone;
  for (const Request& r : mixed_requests()) alone.merge(run_on_fake({r}, {}));
  int n_closed = 0, n_ended = 0;
  for (const auto& [id, text] : alone) {
    EXPECT_FALSE(text.tokens.empty()) << text.error;
    n_closed += text.reason == FinishReason::kGrammar;
    n_ended += text.reason == FinishReason::kEos;
  }
  EXPECT_GT(n_closed, 3);
  EXPECT_GT(n_ended, 3);
  for (const World& world :
       {World{.n_blocks = 200}, World{.n_blocks = 8, .max_sequences = 3}, World{.n_blocks = 9, .max_sequences = 1},
        World{.n_blocks = 14, .step_tokens = 8}, World{.n_threads = 3}, World{.n_blocks = 30, .preempts = 5},
        World{.n_blocks = 11, .n_threads = 2, .preempts = 9}, World{.n_states = 64},
        World{.n_blocks = 9, .max_sequences = 1, .n_states = 2},
        World{.n_blocks = 8, .max_sequences = 3, .n_states = 7},
        World{.n_blocks = 30, .preempts = 5, .n_states = 12}}) {
    EXPECT_EQ(run_on_fake(mixed_requests(), world), alone)
        << world.n_blocks << " blocks, " << world.max_sequences << " places, preemptions of seed " << world.preempts;
  }
}

TEST(Search, MayBeCancelledAtAnyStep) {
  for (int at = 0; at < 12; ++at) {
    ThreadTeam team(1);
    Stream stream(team);
    ManualClock clock;
    EngineOptions options{.block_len = 8, .kv_dtype = DType::kF32, .step_tokens = 24, .max_sequences = 3};
    std::unique_ptr<Engine> engine =
        Engine::create(std::make_unique<FakeModel>(kContext), nullptr, stream, options, clock).value();
    Request r = mixed_request(4);
    r.max_tokens = 20;
    ASSERT_TRUE(engine->submit(r).ok());
    std::vector<Output> out;
    for (int step = 0; step < at; ++step) engine->step(out);
    engine->cancel(r.id);
    while (engine->step(out)) {
    }
    engine->self_check();
    EXPECT_EQ(engine->cache().pool().n_in_use(), 0);
    EXPECT_EQ(engine->stats().n_running + engine->stats().n_waiting, 0);
    const FoundTexts answers = found_texts(out);
    EXPECT_EQ(answers.size(), static_cast<size_t>(r.n)) << "each text is told of once, no seat is";
    for (const auto& [id, text] : answers) EXPECT_EQ(text.reason, FinishReason::kCancelled);
  }
}

TEST(Search, IncompatibleFieldsAreRefusedByName) {
  ThreadTeam team(1);
  Stream stream(team);
  std::unique_ptr<Engine> engine = Engine::create(std::make_unique<FakeModel>(kContext), nullptr, stream,
                                                  {.block_len = 8, .max_sequences = 8}, steady_clock())
                                       .value();
  const auto where = [&](const std::function<void(Request&)>& change) {
    Request r = mixed_request(4);
    change(r);
    const Result<AdmittedRequest> admitted = engine->admit(std::move(r));
    return admitted ? std::string("taken") : admitted.error().where;
  };
  EXPECT_EQ(where([](Request&) {}), "taken");
  EXPECT_EQ(where([](Request& r) { r.n = r.search.width + 1; }), "n");
  EXPECT_EQ(where([](Request& r) { r.max_tokens = 0; }), "max_tokens");
  EXPECT_EQ(where([](Request& r) { r.prompt_logprobs = 0; }), "prompt_logprobs");
  EXPECT_EQ(where([](Request& r) { r.sampling.logprobs = 1; }), "top_logprobs");
  EXPECT_EQ(where([](Request& r) { r.sampling.temperature = 0.5f; }), "temperature");
  EXPECT_EQ(where([](Request& r) { r.sampling.top_p = 0.5f; }), "temperature");
  EXPECT_EQ(where([](Request& r) { r.search.width = kMaxBeams + 1; }), "num_beams");
  EXPECT_EQ(where([](Request& r) { r.search.n_groups = 4; }), "num_beam_groups");
  EXPECT_EQ(where([](Request& r) { r.search.diversity_penalty = 1; }), "diversity_penalty");
  EXPECT_EQ(where([](Request& r) { r.search.length_penalty = std::nanf(""); }), "length_penalty");
  EXPECT_EQ(where([](Request& r) {
              r.search = {.kind = SearchKind::kContrastive, .width = 1};
              r.n = 1;
            }),
            "top_k");
  EXPECT_EQ(where([](Request& r) {
              r.search = {.kind = SearchKind::kContrastive, .width = 4, .alpha = 2};
              r.n = 1;
            }),
            "penalty_alpha");
}

}  // namespace
}  // namespace ibid
