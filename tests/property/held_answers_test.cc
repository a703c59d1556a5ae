// Answers constrained by a grammar, a reasoning budget or a search, over real models: the same tokens,
// log-probabilities and scores under any schedule (schedules.h), with any number of threads, and with any state of the
// mask caches.
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "kernels/isa.h"
#include "model/testing/loaded_model.h"
#include "sample/grammar/matcher.h"
#include "schedules.h"
#include "spelled_tokens.h"
#include "text/output/reasoning_budget.h"

namespace ibid {
namespace {

using testing::LoadedModel;
using testing::Schedule;
using testing::ScheduleRun;

constexpr int32_t kContext = 336;
constexpr int32_t kMaxTokens = 320;
constexpr int32_t kMaxSequences = 8;

// Printable bytes, then pieces of JSON, of calls and of reasoning.
std::vector<std::string> pieces_and_letters() {
  std::vector<std::string> tokens;
  for (char c = ' '; c <= '~'; ++c) tokens.push_back(std::string(1, c));
  for (const char* piece :
       {"{\"",      "\":",       "\",\"",  "\"}",       "\"}}",         "},{", "]}",     "[[",     "12",
        "345",      "true",      "null",   "ab",        "bc",           "abc", "<think", "</thi",  "nk>",
        "</think>", "</think>{", "<call>", "<call>{\"", "\"name\": \"", "\n",  "  ",     "add\",", "a\"",
        "é",        "\xC3",      "\xA9",   "",          "0.",           "-1",  "e1"})
    tokens.emplace_back(piece);
  return tokens;
}

const std::shared_ptr<const SpelledTokens>& pieces() {
  static const auto made = std::make_shared<const SpelledTokens>(pieces_and_letters(), 0, ' ');
  return made;
}

std::shared_ptr<const grammar::TokenTrie> trie() {
  static const auto made = std::make_shared<const grammar::TokenTrie>(
      std::vector<std::string_view>(pieces()->vocabulary().tokens.begin(), pieces()->vocabulary().tokens.end()));
  return made;
}

// Requests of an agent: an object, a text, a tool call that the model must or may start by itself, a list that closes
// in time, reasoning with a grammar after it.
const std::vector<grammar::Source>& sources() {
  using grammar::Language;
  static const std::vector<grammar::Source> all = {
      {Language::kJsonSchema,
       true,
       R"({"type":"object","properties":{"name":{"type":"string","pattern":"^[a-c]{1,5}$"},
           "n":{"type":"integer","minimum":-3,"maximum":400},"of":{"type":"array","items":{"enum":["ab","c",null]},
           "maxItems":5}},"required":["n","of"],"additionalProperties":false})",
       {}},
      {Language::kRegex, false, "(ab|abc|c)+\\.|[0-9]{3,9}x?", {}},
      {Language::kStructuralTag,
       false,
       R"({"structures":[{"begin":"<call>","schema":{"type":"object","properties":{"name":{"const":"add"},
           "a":{"type":"integer"}},"required":["name"],"additionalProperties":false},"end":"</call>"}],
           "triggers":["<"]})",
       {}},
      {Language::kGbnf,
       false,
       "root ::= \"[\" (value (\",\" value)*)? \"]\"\nvalue ::= root | [1-9]{1,3} | \"true\" | root \"é\"",
       {}},
      {Language::kLark, false, "start: thought \"{\" /[ab]{2,6}/ \"}\"\nthought: /[^<]*<\\/think>/", {}}};
  return all;
}

std::shared_ptr<grammar::Compiled> compiled(size_t i, size_t max_bytes) {
  grammar::Fuel fuel;
  grammar::Grammar rules(fuel);
  const Status done = read(sources()[i], {}, rules);
  EXPECT_TRUE(done.ok()) << done.error().message;
  return std::make_shared<grammar::Compiled>(sources()[i], grammar::compile(rules, *trie()).value(), trie(), max_bytes);
}

// State of the mask caches when requests arrive.
enum class Masks : uint8_t { kCold, kWarm, kForgotten };

class MaskCaches {
 public:
  // The grammar of the i-th source: one of its own, one shared by all earlier requests, or one that always forgets.
  std::shared_ptr<grammar::Compiled> of(Masks masks, size_t i) {
    if (masks == Masks::kCold) return compiled(i, grammar::TokenMasks::kDefaultBytes);
    auto& slot = (masks == Masks::kWarm ? warm_ : small_)[i];
    if (!slot) slot = compiled(i, masks == Masks::kWarm ? grammar::TokenMasks::kDefaultBytes : 1 << 12);
    return slot;
  }

 private:
  std::map<size_t, std::shared_ptr<grammar::Compiled>> warm_, small_;
};

constexpr size_t kNone = ~size_t{0};

struct Held {
  Request request;
  size_t source = kNone;
  bool closes_in_time = false;
};

std::vector<Held> held_requests(int32_t vocab_size) {
  const auto text = testing::some_tokens(kContext, vocab_size, 3),
             other = testing::some_tokens(kContext, vocab_size, 4);
  std::vector<Held> out(14);
  for (size_t i = 0; i < out.size(); ++i) {
    Request& r = out[i].request;
    const auto& from = i % 3 == 0 ? other : text;
    r.id = RequestId{i + 1};
    r.prompt.assign(from.begin(), from.begin() + 5 + static_cast<int64_t>(i * 13 % 60));
    r.max_tokens = 14;
    r.sampling = {.temperature = i % 4 == 0 ? 0.0F : 1.2F, .seed = 100 * i, .logprobs = 2};
    if (i < 6) out[i].source = i % sources().size();
  }
  out[1].request.sampling.top_p = 0.7F;
  out[2].request.n = 2;
  out[3].closes_in_time = true;
  out[4].request.prompt.assign(other.begin(), other.begin() + 250);
  out[5].request.sampling.repetition_penalty = 1.3F;
  const auto reasons = [&](size_t i, int32_t budget) {
    out[i].request.reasoning = std::make_shared<const ReasoningBudget>(
        pieces(), budget, ReasoningMarkers{"<think>", {"</think>", "<call>"}, true});
    out[i].request.max_tokens = 24;
  };
  const auto searches = [&](size_t i, SearchOptions search, int32_t n) {
    out[i].request.search = search;
    out[i].request.sampling = {.temperature = 0, .logprobs = 0};
    out[i].request.n = n;
  };
  reasons(6, 4);
  reasons(7, 0);
  reasons(8, 5);
  out[8].source = 4;
  searches(9, {.kind = SearchKind::kBeam, .width = 4, .length_penalty = 1}, 2);
  out[9].source = 0;
  searches(10, {.kind = SearchKind::kBeam, .width = 4, .n_groups = 2, .diversity_penalty = 0.5F}, 3);
  searches(11, {.kind = SearchKind::kBeam, .width = 3, .early_stopping = EarlyStopping::kYes}, 1);
  out[11].source = 4;
  reasons(11, 3);
  searches(12, {.kind = SearchKind::kContrastive, .width = 3, .alpha = 0.6F}, 1);
  return out;  // the last one is free
}

struct Said {
  std::string digest;
  double score;
  bool operator==(const Said&) const = default;
};

class HeldAnswers : public ::testing::TestWithParam<std::string_view> {
 protected:
  HeldAnswers() {
    file_ = testing::tiny_model_file(
        {.architecture = GetParam(), .dtype = DType::kQ8_0, .vocab_size = 129, .context_len = kContext, .window = 24});
  }
  ~HeldAnswers() override { EXPECT_TRUE(select_isa(supported_isas().back()).ok()); }

  LoadedModel& load(Isa isa, int n_threads) {
    EXPECT_TRUE(select_isa(isa).ok());
    auto& slot = models_[{isa, n_threads}];
    if (!slot) {
      slot = std::make_unique<LoadedModel>(file_,
                                           ModelOptions{.context_len = kContext,
                                                        .step_tokens = kMaxTokens,
                                                        .max_rows = kMaxSequences,
                                                        .max_sequences = kMaxSequences},
                                           n_threads);
    }
    return *slot;
  }

  std::vector<Said> say(LoadedModel& m, const Schedule& schedule, const std::vector<Held>& held, Masks masks,
                        testing::Totals* totals = nullptr) {
    std::vector<Request> requests;
    std::map<std::vector<TokenId>, const Held*> by_prompt;
    for (const Held& h : held) requests.push_back(h.request);
    const auto prepare = [&](Request& r) {
      const uint64_t i = raw(r.id) < 1000 ? raw(r.id) - 1 : raw(r.id) - 1000;  // those that warm up have ids from 1,000
      const Held& h = held.size() == 1 ? held[0] : held[i];
      if (h.source == kNone) return;
      const int32_t places = r.searches() ? r.search.width : r.n;
      r.grammar = std::make_shared<grammar::Matcher>(caches_.of(masks, h.source), std::vector<TokenId>{}, places,
                                                     h.closes_in_time);
    };
    ScheduleRun run(*m.model, *m.stream, nullptr, DType::kF16, schedule, requests, prepare);
    run.run(totals);
    std::vector<Said> said;
    for (const Held& h : held)
      for (int32_t choice = 0; choice < h.request.n; ++choice) {
        const testing::Transcript& t = run.transcript(h.request.id, choice);
        said.push_back({t.digest(), t.score()});
        if (totals == nullptr) judge(h, t);
      }
    return said;
  }

  // An answer matches its grammar, and reasoning ends within its budget.
  void judge(const Held& h, const testing::Transcript& t) {
    std::string text;
    for (const TokenId token : t.tokens()) text += pieces()->token_bytes(token, true);
    if (h.source != kNone) {
      grammar::Fuel fuel;
      grammar::Grammar rules(fuel);
      ASSERT_TRUE(read(sources()[h.source], {}, rules).ok());
      grammar::States states(grammar::compile(rules, *trie()).value());
      const grammar::StateId end = states.after(grammar::kInitial, text);
      ASSERT_NE(end, grammar::kDead) << text;
      EXPECT_TRUE(t.reason() != FinishReason::kGrammar || states.is_closed(end)) << text;
      EXPECT_TRUE(!h.closes_in_time || states.accepts(end)) << text;
      n_closed_ += t.reason() == FinishReason::kGrammar;
    }
    if (h.request.reasoning) n_reasoned_ += text.find("</think>") != std::string::npos;
  }

  std::shared_ptr<const ModelFile> file_;
  std::map<std::pair<Isa, int>, std::unique_ptr<LoadedModel>> models_;
  MaskCaches caches_;
  int n_closed_ = 0, n_reasoned_ = 0;
};

// Sixty-four of both.
TEST_P(HeldAnswers, AreTheSameUnderThirtyTwoSchedules) {
  const std::vector<Held> held = held_requests(129);
  LoadedModel& best = load(supported_isas().back(), 1);
  std::vector<Said> expected;
  for (const Held& h : held) {
    // Choices that are drawn are those of as many requests; those of a search belong together.
    for (int32_t choice = 0; choice < (h.request.searches() ? 1 : h.request.n); ++choice) {
      Held one = h;
      one.request.sampling.seed += static_cast<uint64_t>(choice);
      if (!h.request.searches()) one.request.n = 1;
      const auto said = say(best, {.step_tokens = kMaxTokens, .prefix_cache = false}, {one}, Masks::kCold);
      expected.insert(expected.end(), said.begin(), said.end());
    }
  }
  EXPECT_GE(n_closed_, 3);
  EXPECT_GE(n_reasoned_, 3);
  const std::vector<Isa> isas = supported_isas();
  testing::Totals totals;
  const auto architectures = testing::tiny_architectures();
  const auto index = std::ranges::find(architectures, GetParam()) - architectures.begin();
  const uint64_t first = 70001 + 100 * static_cast<uint64_t>(index);
  for (uint64_t seed = first; seed < first + 32; ++seed) {
    const Schedule schedule = testing::random_schedule(seed, kMaxTokens, kMaxSequences);
    const Isa isa = seed % 16 == 5 ? isas.front() : isas.back();
    const int n_threads = 1 + static_cast<int>(seed % 4);
    const auto masks = static_cast<Masks>(seed % 3);
    ASSERT_EQ(say(load(isa, n_threads), schedule, held, masks, &totals), expected)
        << spelled(schedule) << ", " << isa_name(isa) << ", threads " << n_threads << ", masks "
        << static_cast<int>(masks);
  }
  EXPECT_GT(totals.n_preemptions, 0);
  EXPECT_GT(totals.cached_tokens, 0);
  EXPECT_GT(totals.n_accepted, 20);
  EXPECT_GT(totals.n_blocks_up, 0);
  EXPECT_GT(totals.n_fetched, 0);
}
const auto kNamed = [](const auto& param_info) { return std::string(param_info.param); };
INSTANTIATE_TEST_SUITE_P(Architectures, HeldAnswers, ::testing::Values("llama", "gemma3"), kNamed);
// Others of testing::tiny_architectures(), each kind of layer among them.
INSTANTIATE_TEST_SUITE_P(SlowArchitectures, HeldAnswers,
                         ::testing::Values("mistral", "qwen2", "qwen3", "smollm3", "phi3", "qwen3moe", "qwen2moe",
                                           "glm4moe", "lfm2", "qwen35", "qwen3next", "gemma4", "gpt_oss", "deepseek2",
                                           "nemotron_h_moe", "falcon_h1"),
                         kNamed);

}  // namespace
}  // namespace ibid
