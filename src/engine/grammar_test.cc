// Requests with grammars in the engine: the same answers alone, in company, preempted, with and without drafts; each
// matches the grammar and ends where it ends.
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "engine/engine.h"
#include "fake_model.h"
#include "sample/grammar/languages.h"
#include "sample/grammar/matcher.h"
#include "spec/lookup/grammar_proposer.h"
#include "spec/model/draft_model.h"

namespace ibid {
namespace {

using testing::FakeModel;
using testing::kFakeEnd;

// Token t of the fake vocabulary: bytes and pieces of JSON.
const std::vector<std::string>& words() {
  static const std::vector<std::string> made = [] {
    std::vector<std::string> all = {""};  // the end
    for (const char* w :
         {"{",   "}",     "[",   "]",  ",",  ":",  "\"", "1",   "2",  "a",  "b",    "c",   " ",  "true", "null", "{\"",
          "\":", "\",\"", "\"}", "]}", "ab", "bc", "12", "},{", "[[", "]]", "\":[", "abc", "1,", "e",    "."})
      all.push_back(w);
    while (all.size() < testing::kFakeVocabSize)
      all.push_back(std::string(1, static_cast<char>('d' + all.size() % 20)));
    return all;
  }();
  return made;
}

std::shared_ptr<const grammar::TokenTrie> trie() {
  static const auto made =
      std::make_shared<const grammar::TokenTrie>(std::vector<std::string_view>(words().begin(), words().end()));
  return made;
}

constexpr const char* kGrammars[] = {
    "root ::= object\nobject ::= \"{\" (pair (\",\" pair)*)? \"}\"\npair ::= \"\\\"\" [a-c]{1,6} \"\\\":\" value\n"
    "value ::= object | \"[\" (value (\",\" value)*)? \"]\" | [1-2]{1,3} | \"true\" | \"null\"",
    "root ::= [a-z]{3,40}", "root ::= (\"ab\" | \"abc\" | \"c\")+ \".\"", "root ::= \"[\" [12]* \"]\""};

std::shared_ptr<const grammar::Automaton> automaton(size_t i) {
  grammar::Fuel fuel;
  grammar::Grammar rules(fuel);
  EXPECT_TRUE(grammar::read_gbnf(kGrammars[i], {}, rules).ok());
  return grammar::compile(rules, *trie()).value();
}

// Grammars shared by all requests, each with a state cache too small for them.
std::shared_ptr<grammar::Compiled> compiled(size_t i) {
  static const auto all = [] {
    std::vector<std::shared_ptr<grammar::Compiled>> made;
    for (size_t k = 0; k < std::size(kGrammars); ++k)
      made.push_back(std::make_shared<grammar::Compiled>(
          grammar::Source{.language = grammar::Language::kGbnf, .text = kGrammars[k]}, automaton(k), trie(), 1 << 12));
    return made;
  }();
  return all[i];
}

struct Answered {
  std::vector<TokenId> tokens;
  FinishReason reason = FinishReason::kNone;
  bool operator==(const Answered&) const = default;
};

// Proposes the expected answer, or other tokens.
class Oracle final : public Proposer {
 public:
  explicit Oracle(std::vector<Answered> answers) : answers_(std::move(answers)) {}
  void propose(const ProposalInput& input, Drafts& drafts) override {
    for (const auto& [answer, reason] : answers_) {
      if (answer.size() <= input.answer.size() || !std::equal(input.answer.begin(), input.answer.end(), answer.begin()))
        continue;
      for (int32_t i = 0; i < input.max_drafts && input.answer.size() + static_cast<size_t>(i) < answer.size(); ++i) {
        const bool is_wrong = rng_() % 6 == 0;
        drafts.add(is_wrong ? TokenId{static_cast<int32_t>(rng_() % 64)}
                            : answer[input.answer.size() + static_cast<size_t>(i)],
                   i - 1);
      }
      return;
    }
  }

 private:
  std::vector<Answered> answers_;
  std::mt19937 rng_{4};
};

Request request(uint64_t id, bool closes_in_time, int32_t n = 1) {
  Request r;
  r.id = RequestId{id};
  for (uint64_t i = 0; i < 3 + id % 7; ++i)
    r.prompt.push_back(TokenId{1 + static_cast<int32_t>(testing::mix(id, i) % 63)});
  r.max_tokens = 12 + static_cast<int32_t>(id % 20);
  r.n = n;
  r.sampling.seed = id;
  r.sampling.temperature = id % 3 == 0 ? 0.0f : 1.5f;
  r.grammar = std::make_shared<grammar::Matcher>(compiled(id % std::size(kGrammars)), std::vector<TokenId>{kFakeEnd}, n,
                                                 closes_in_time);
  return r;
}

std::vector<Answered> run(const std::vector<uint64_t>& ids, int n_blocks, bool closes_in_time,
                          const std::vector<Answered>* known, const std::vector<TokenId>& resumed = {}) {
  ThreadTeam team(2);
  Stream stream(team);
  ManualClock clock;
  EngineOptions options{.block_len = 8, .step_tokens = 24, .max_sequences = 8};
  auto fake = std::make_unique<FakeModel>(64);
  options.kv_dtype = DType::kF32;
  options.kv_bytes = n_blocks * KvStore::block_bytes(fake->facts(), options.kv_dtype, options.block_len);
  std::unique_ptr<Engine> engine = Engine::create(std::move(fake), nullptr, stream, options, clock).value();
  if (known != nullptr) engine->speculate(std::make_unique<Oracle>(*known), 4);
  for (uint64_t id : ids) {
    Request r = request(id, closes_in_time);
    r.resume.tokens = resumed;
    EXPECT_TRUE(engine->submit(std::move(r)).ok());
  }
  std::vector<Answered> answers(ids.size());
  std::vector<Output> out;
  while (engine->step(out)) {
  }
  for (const Output& o : out)
    for (size_t i = 0; i < ids.size(); ++i) {
      if (raw(o.request) != ids[i]) continue;
      for (const TokenRecord& t : o.tokens) answers[i].tokens.push_back(t.chosen.token);
      if (o.finished) answers[i].reason = o.reason;
    }
  return answers;
}

TEST(EngineGrammar, AnswersAreOfItAndTheSameHoweverTheyCameAbout) {
  std::vector<uint64_t> ids;
  for (uint64_t id = 1; id <= 24; ++id) ids.push_back(id);
  for (bool closes_in_time : {false, true}) {
    std::vector<Answered> alone;
    int n_closed = 0, n_cut = 0;
    for (uint64_t id : ids) {
      alone.push_back(run({id}, 64, closes_in_time, nullptr)[0]);
      const Answered& answer = alone.back();
      std::string text;
      for (TokenId t : answer.tokens) text += words()[static_cast<size_t>(raw(t))];
      grammar::States states(automaton(id % std::size(kGrammars)));
      const grammar::StateId end = states.after(grammar::kInitial, text);
      ASSERT_NE(end, grammar::kDead) << text;
      EXPECT_TRUE(answer.reason != FinishReason::kGrammar || states.is_closed(end)) << text;
      EXPECT_TRUE((answer.reason != FinishReason::kEos && !closes_in_time) || states.accepts(end)) << text;
      n_closed += answer.reason == FinishReason::kGrammar;
      n_cut += answer.reason == FinishReason::kLength && !states.accepts(end);
    }
    EXPECT_GT(n_closed, 5);
    EXPECT_EQ(n_cut > 0, !closes_in_time);
    for (int n_blocks : {16, 30, 200}) {
      EXPECT_EQ(run(ids, n_blocks, closes_in_time, nullptr), alone) << n_blocks;
      EXPECT_EQ(run(ids, n_blocks, closes_in_time, &alone), alone) << n_blocks << " with drafts";
    }
  }
}

// Cut after any of their tokens, answers go on in their grammar; what is none of it is refused.
TEST(EngineGrammar, AResumedAnswerGoesOnInItsGrammar) {
  for (uint64_t id = 1; id <= 12; ++id) {
    for (bool closes_in_time : {false, true}) {
      const Answered whole = run({id}, 64, closes_in_time, nullptr)[0];
      for (size_t n = 0; n <= whole.tokens.size(); ++n) {
        const auto cut = whole.tokens.begin() + static_cast<std::ptrdiff_t>(n);
        const Answered rest = run({id}, 64, closes_in_time, nullptr, {whole.tokens.begin(), cut})[0];
        EXPECT_EQ(rest.tokens, std::vector<TokenId>(cut, whole.tokens.end())) << id << " cut after " << n;
        EXPECT_EQ(rest.reason, whole.reason) << id << " cut after " << n;
      }
    }
  }
  FakeModel model(64);
  Request r = request(1, false);  // [a-z]{3,40}
  r.resume.tokens = {TokenId{10}, TokenId{1}};
  const Result<AdmittedRequest> admitted = admit(std::move(r), model.facts(), false);
  ASSERT_FALSE(admitted.ok());
  EXPECT_EQ(admitted.error().message, "Token 1 of resume is none that the answer's grammar allows there.");
}

// A request with one grammar, and its proposer, if any.
std::pair<EngineStats, std::vector<TokenId>> answer_in(const char* text, std::unique_ptr<Proposer> proposer,
                                                       Stream& stream, float temperature = 1.5F) {
  ManualClock clock;
  EngineOptions options{.block_len = 8, .step_tokens = 24, .max_sequences = 2, .max_rows = 12};
  std::unique_ptr<Engine> engine =
      Engine::create(std::make_unique<FakeModel>(64), nullptr, stream, options, clock).value();
  if (proposer) engine->speculate(std::move(proposer), 8);
  grammar::Fuel fuel;
  grammar::Grammar rules(fuel);
  EXPECT_TRUE(grammar::read_gbnf(text, {}, rules).ok());
  auto compiled_once =
      std::make_shared<grammar::Compiled>(grammar::Source{.language = grammar::Language::kGbnf, .text = text},
                                          grammar::compile(rules, *trie()).value(), trie());
  Request r = request(5, false);
  r.sampling.temperature = temperature;
  r.grammar = std::make_shared<grammar::Matcher>(compiled_once, std::vector<TokenId>{kFakeEnd}, 1);
  EXPECT_TRUE(engine->submit(std::move(r)).ok());
  std::vector<Output> out;
  while (engine->step(out)) {
  }
  std::vector<TokenId> tokens;
  for (const Output& o : out) {
    for (const TokenRecord& t : o.tokens) tokens.push_back(t.chosen.token);
  }
  return {engine->stats(), tokens};
}

// An answer with more connected parses of an ambiguous grammar than the state limit allows ends with an error, even
// within a token; other requests are not affected.
TEST(EngineGrammar, ASequenceThatAmbiguityMakesTooCostlyFailsAlone) {
  grammar::Fuel fuel;
  grammar::Grammar rules(fuel);
  ASSERT_TRUE(grammar::read_gbnf("root ::= ([A-Za-z ,.]{1,900} [0-9]{0,40})*", {}, rules).ok());
  std::vector<std::string> phrases = {""};
  for (const char* first : {" ", "", ", ", "T"}) {
    for (char c = 'a'; phrases.size() % 16 != 0; ++c)
      phrases.push_back(first + std::string(1, c) + (c % 2 == 0 ? "near" : "or"));
    if (phrases.size() < testing::kFakeVocabSize) phrases.push_back(first + std::string("lin"));
  }
  const auto of_phrases =
      std::make_shared<const grammar::TokenTrie>(std::vector<std::string_view>(phrases.begin(), phrases.end()));
  const auto costly =
      std::make_shared<grammar::Compiled>(grammar::Source{}, grammar::compile(rules, *of_phrases).value(), of_phrases);
  ThreadTeam team(2);
  Stream stream(team);
  ManualClock clock;
  auto fake = std::make_unique<FakeModel>(2048);
  EngineOptions options{.block_len = 8, .step_tokens = 24, .max_sequences = 8};
  options.kv_dtype = DType::kF32;
  options.kv_bytes = 600 * KvStore::block_bytes(fake->facts(), options.kv_dtype, options.block_len);
  const std::unique_ptr<Engine> engine = Engine::create(std::move(fake), nullptr, stream, options, clock).value();
  for (uint64_t id = 1; id <= 2; ++id) {
    Request r = request(id, false);
    r.max_tokens = 1800;
    r.sampling.ignore_eos = true;
    r.sampling.temperature = 1.5f;
    r.grammar = id == 1 ? std::make_shared<grammar::Matcher>(costly, std::vector<TokenId>{kFakeEnd}, 1) : nullptr;
    ASSERT_TRUE(engine->submit(std::move(r)).ok());
  }
  std::vector<Output> out;
  while (engine->step(out)) {
  }
  std::map<uint64_t, FinishReason> reasons;
  for (const Output& o : out) {
    if (o.finished) reasons[raw(o.request)] = o.reason;
  }
  EXPECT_EQ(reasons[1], FinishReason::kError);
  EXPECT_EQ(reasons[2], FinishReason::kLength);
}

TEST(EngineGrammar, ForcedTokensAreDrafted) {
  ThreadTeam team(1);
  Stream stream(team);
  const char* text = "root ::= \"hijkl\" [m-o] \"ijklmno\" [k-m]{5,9}";
  const auto plain = answer_in(text, nullptr, stream);
  const auto drafted = answer_in(text, std::make_unique<GrammarProposer>(testing::kFakeVocabSize), stream);
  EXPECT_EQ(drafted.second, plain.second);
  EXPECT_EQ(drafted.first.accepted_tokens, 4 + 7);
  EXPECT_EQ(drafted.first.drafted_tokens, drafted.first.accepted_tokens);
}

TEST(EngineGrammar, ADraftModelDrawsWithinItToo) {
  ThreadTeam team(1);
  Stream stream(team);
  int64_t n_drafted = 0;
  for (const char* text : kGrammars) {
    const auto plain = answer_in(text, nullptr, stream);
    DraftModelOptions options{
        .kv_bytes = 1 << 20, .max_sequences = 2, .vocab_size = testing::kFakeVocabSize, .always = true};
    auto draft = DraftModel::create(std::make_unique<FakeModel>(64), stream, options).value();
    const auto drafted = answer_in(text, std::move(draft), stream);
    EXPECT_EQ(drafted.second, plain.second) << text;
    EXPECT_EQ(drafted.first.drafted_tokens, drafted.first.accepted_tokens) << text;
    n_drafted += drafted.first.drafted_tokens;
  }
  EXPECT_GT(n_drafted, 10);
}

// Proposes tokens that the grammar forbids.
class Refused final : public Proposer {
 public:
  void propose(const ProposalInput& input, Drafts& drafts) override {
    for (int32_t i = 0; i < input.max_drafts; ++i) drafts.add(TokenId{63 - i}, i - 1);
  }
};

// Drafts that the grammar forbids are not verified: they take no row.
TEST(EngineGrammar, DraftsEndWhereTheGrammarRefusesThem) {
  for (const bool has_grammar : {true, false}) {
    ThreadTeam team(1);
    Stream stream(team);
    ManualClock clock;
    EngineOptions options{.block_len = 8, .step_tokens = 24, .max_sequences = 8};
    std::unique_ptr<Engine> engine =
        Engine::create(std::make_unique<FakeModel>(64), nullptr, stream, options, clock).value();
    engine->speculate(std::make_unique<Refused>(), 4);
    for (uint64_t id = 3; id < 16; id += 4) {  // brackets and figures
      Request r = request(id, false);
      if (!has_grammar) r.grammar = nullptr;
      ASSERT_TRUE(engine->submit(std::move(r)).ok());
    }
    std::vector<Output> out;
    while (engine->step(out)) {
    }
    EXPECT_EQ(engine->stats().drafted_tokens == 0, has_grammar);
  }
}

}  // namespace
}  // namespace ibid
