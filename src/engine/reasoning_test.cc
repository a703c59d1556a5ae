// Budgets of reasoning in the engine: a block still open after the budget is closed, others are left alone, and the
// bytes are the same alone, in company, preempted, with drafts, and with a grammar after.
#include <gtest/gtest.h>

#include <random>

#include "engine/engine.h"
#include "fake_model.h"
#include "found_texts.h"
#include "sample/grammar/languages.h"
#include "sample/grammar/matcher.h"
#include "spelled_tokens.h"
#include "text/output/reasoning_budget.h"

namespace ibid {
namespace {

using testing::FakeModel;
using testing::found_texts;
using testing::FoundText;
using testing::FoundTexts;
using testing::kFakeEnd;

// A letter each, from '@' on; token 0 is the end.
const std::shared_ptr<const SpelledTokens>& letters() {
  static const auto made = [] {
    std::vector<std::string> tokens = {""};
    for (int i = 1; i < testing::kFakeVocabSize; ++i) tokens.push_back(std::string(1, static_cast<char>('@' + i - 1)));
    return std::make_shared<const SpelledTokens>(std::move(tokens), 1, '@');
  }();
  return made;
}

std::string text_of(const FoundText& found) {
  std::string text;
  for (const TokenId t : found.tokens) text += letters()->token_bytes(t, true);
  return text;
}

std::shared_ptr<grammar::Compiled> digits_after_reasoning() {
  static const auto made = [] {
    std::vector<std::string_view> words(letters()->vocabulary().tokens.begin(), letters()->vocabulary().tokens.end());
    auto trie = std::make_shared<const grammar::TokenTrie>(words);
    // Up to the first XYZ, then eight letters of A and B.
    constexpr const char* kText =
        "root ::= before [AB]{8}\nbefore ::= \"X\" x | [^X] before\nx ::= \"Y\" y | \"X\" x | [^XY] before\n"
        "y ::= \"Z\" | \"X\" x | [^XZ] before";
    grammar::Fuel fuel;
    grammar::Grammar rules(fuel);
    EXPECT_TRUE(grammar::read_gbnf(kText, {}, rules).ok());
    return std::make_shared<grammar::Compiled>(grammar::Source{.language = grammar::Language::kGbnf, .text = kText},
                                               grammar::compile(rules, *trie).value(), trie);
  }();
  return made;
}

constexpr const char* kEnd = "XYZ";

Request request(uint64_t id, bool has_budget = true) {
  Request r;
  r.id = RequestId{id};
  for (uint64_t i = 0; i < 3 + id % 7; ++i)
    r.prompt.push_back(TokenId{1 + static_cast<int32_t>(testing::mix(id, i) % 63)});
  r.max_tokens = 40;
  r.sampling.seed = id;
  r.sampling.logprobs = 0;
  r.sampling.ignore_eos = true;
  r.sampling.temperature = id % 3 == 0 ? 0.0f : 1.5f;
  if (id % 4 == 1)
    r.grammar = std::make_shared<grammar::Matcher>(digits_after_reasoning(), std::vector<TokenId>{kFakeEnd}, 4);
  if (id % 8 == 5) r.search = {.kind = SearchKind::kBeam, .width = 3}, r.sampling.temperature = 0;
  if (has_budget) {
    r.reasoning = std::make_shared<const ReasoningBudget>(letters(), static_cast<int32_t>(id % 11),
                                                          ReasoningMarkers{"<", {kEnd, "Q"}, id % 16 != 2});
  }
  return r;
}

// Proposes random tokens, and the tokens that a budget forces.
class FixedProposer final : public Proposer {
 public:
  void propose(const ProposalInput& input, Drafts& drafts) override {
    for (int32_t i = 0; i < input.max_drafts; ++i) {
      const std::string_view end = kEnd;
      const TokenId token = rng_() % 2 == 0 ? TokenId{end[static_cast<size_t>(rng_() % 3)] - '@' + 1}
                                            : TokenId{static_cast<int32_t>(rng_() % 64)};
      drafts.add(token, i - 1);
    }
  }

 private:
  std::mt19937 rng_{4};
};

FoundTexts run(const std::vector<uint64_t>& ids, int n_blocks, bool has_budget, bool has_drafts) {
  ThreadTeam team(2);
  Stream stream(team);
  ManualClock clock;
  EngineOptions options{.block_len = 8, .kv_dtype = DType::kF32, .step_tokens = 24, .max_sequences = 8};
  auto fake = std::make_unique<FakeModel>(64);
  options.kv_bytes = n_blocks * KvStore::block_bytes(fake->facts(), options.kv_dtype, options.block_len);
  std::unique_ptr<Engine> engine = Engine::create(std::move(fake), nullptr, stream, options, clock).value();
  if (has_drafts) engine->speculate(std::make_unique<FixedProposer>(), 4);
  for (const uint64_t id : ids) EXPECT_TRUE(engine->submit(request(id, has_budget)).ok());
  std::vector<Output> out;
  while (engine->step(out)) {
  }
  return found_texts(out);
}

TEST(EngineReasoning, EndsInItsBudgetAndTheSameHoweverItCameAbout) {
  std::vector<uint64_t> ids;
  FoundTexts alone;
  int n_closed = 0, n_by_itself = 0;
  for (uint64_t id = 1; id <= 48; ++id) {
    ids.push_back(id);
    alone.merge(run({id}, 64, true, false));
    const FoundText found = alone.at({RequestId{id}, 0});
    const std::string text = text_of(found), free = text_of(run({id}, 64, false, false).at({RequestId{id}, 0}));
    const size_t budget = id % 11, end = std::min(text.find(kEnd), text.find('Q'));
    const bool is_open = request(id).reasoning->markers().is_open;
    if (request(id).searches()) {  // other beams live
      EXPECT_LE(end, budget) << id << " " << text;
    } else if (!is_open) {
      EXPECT_EQ(text, free) << id << ": it never opens";
    } else if (free.substr(0, budget).find('Q') != std::string::npos) {
      EXPECT_EQ(text, free) << id;
      ++n_by_itself;
    } else {
      EXPECT_EQ(text.substr(0, budget), free.substr(0, budget)) << id;
      EXPECT_EQ(text.substr(budget, 3), kEnd) << id << " " << text;
      ++n_closed;
    }
    if (!request(id).grammar || !is_open || text.find(kEnd) > end) continue;
    // The grammar stands after the marker that was forced, or one before.
    const size_t at = text.find(kEnd) + 3;
    EXPECT_EQ(text.find_first_not_of("AB", at), std::string::npos) << text;
    EXPECT_EQ(text.size(), at + 8) << text;
    EXPECT_EQ(found.reason, FinishReason::kGrammar);
  }
  EXPECT_GT(n_closed, 20);
  EXPECT_GT(n_by_itself, 0);
  for (const int n_blocks : {16, 30, 200}) {
    EXPECT_EQ(run(ids, n_blocks, true, false), alone) << n_blocks;
    EXPECT_EQ(run(ids, n_blocks, true, true), alone) << n_blocks << " with drafts";
  }
}

}  // namespace
}  // namespace ibid
