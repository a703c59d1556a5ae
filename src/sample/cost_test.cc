// What one draw may cost: an admitted request must not delay the step of others, whatever its parameters are. CPU time
// of this thread, the best of several tries, so that a busy machine fails nothing; the shapes of growth are counted
// elsewhere (repeats_test.cc).
#include <gtest/gtest.h>

#include <chrono>
#include <ctime>
#include <functional>
#include <limits>
#include <random>
#include <thread>

#include "measured.h"
#include "sample/sampler.h"
#include "spelled_tokens.h"
#include "text/output/breaker_set.h"

namespace ibid {
namespace {

constexpr int32_t kVocabSize = 49152, kHistoryLen = 8192;
constexpr double kLimitMs = 2.0;

double cpu_ms() {
  timespec t = {};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) * 1e3 + static_cast<double>(t.tv_nsec) * 1e-6;
}

// Stops at the first try within the limit; the best of all tries otherwise.
double least_ms(const std::function<void()>& run, double limit, int n_tries) {
  double least = std::numeric_limits<double>::infinity();
  for (int i = 0; i < n_tries && least > limit; ++i) {
    const double begin = cpu_ms();
    run();
    least = std::min(least, cpu_ms() - begin);
    // Who shares the core's caches may be gone the next time.
    if (least > limit) std::this_thread::sleep_for(std::chrono::milliseconds(i / 4));
  }
  return least;
}

std::vector<TokenId> history(const std::function<int32_t(int32_t)>& token_at) {
  std::vector<TokenId> out;
  for (int32_t i = 0; i < kHistoryLen; ++i) out.push_back(TokenId{token_at(i)});
  return out;
}

struct NamedHistory {
  const char* name;
  std::vector<TokenId> tokens;
};
const std::vector<NamedHistory>& histories() {
  static const std::vector<NamedHistory> all = [] {
    std::mt19937 rng(1);
    std::string fibonacci = "a", before = "b";
    while (fibonacci.size() < kHistoryLen) before = std::exchange(fibonacci, fibonacci + before);
    return std::vector<NamedHistory>{
        {"one token", history([](int32_t) { return 7; })},
        {"two in turn", history([](int32_t i) { return i % 2; })},
        {"one token, but for the middle", history([](int32_t i) { return i == kHistoryLen / 2 ? 8 : 7; })},
        {"a Fibonacci word", history([&](int32_t i) { return int32_t{fibonacci[static_cast<size_t>(i)]}; })},
        {"two at random", history([&](int32_t) { return static_cast<int32_t>(rng() % 2); })},
        {"all different", history([](int32_t i) { return i * 5 % kVocabSize; })},
    };
  }();
  return all;
}

struct NamedRow {
  const char* name;
  std::vector<float> logits;
};
const std::vector<NamedRow>& rows() {
  static const std::vector<NamedRow> all = [] {
    std::mt19937 rng(2);
    std::normal_distribution<float> normal(0, 3);
    std::vector<NamedRow> out = {{"random", {}}, {"flat", {}}, {"nearly flat", {}}, {"rising", {}}, {"falling", {}}};
    for (int32_t i = 0; i < kVocabSize; ++i) {
      const float share = static_cast<float>(i) / kVocabSize;
      out[0].logits.push_back(normal(rng));
      out[1].logits.push_back(0);
      out[2].logits.push_back(normal(rng) * 1e-3f);
      out[3].logits.push_back(share);
      out[4].logits.push_back(-share);
    }
    return out;
  }();
  return all;
}

// What `params` cost above a draw without any stage.
void expect_cheap(const std::string& what, const SamplingParams& params, const NamedRow& row,
                  const std::vector<TokenId>& tokens) {
  SCOPED_TRACE(what + ", row: " + row.name);
  SamplerScratch scratch;
  const auto cost_of = [&](const SamplingParams& p, double limit, int n_tries) {
    const auto sampler = Sampler::compile(p, kVocabSize, {}, 1).value();
    const auto all = std::span<const TokenId>(tokens);
    SamplerState state = sampler->initial_state();
    const SampleHistory seen{all.first(all.size() / 2), all.subspan(all.size() / 2)};
    return least_ms([&] { ASSERT_TRUE(sampler->sample(row.logits, seen, state, scratch).ok()); }, limit, n_tries);
  };
  SamplingParams plain;
  plain.temperature = params.temperature;
  const double base = cost_of(plain, 0, 3);
  const double ms = cost_of(params, base + kLimitMs, 40) - base;
  if (kMeasured) {
    EXPECT_LE(ms, on_this_machine(kLimitMs, ms)) << "a draw without the stage costs " << base << " ms";
  }
}

void expect_cheap_for_histories(const std::string& what, const SamplingParams& params) {
  for (const NamedHistory& h : histories()) {
    expect_cheap(what + ", history: " + h.name, params, rows()[0], h.tokens);
  }
}

void expect_cheap_for_rows(const std::string& what, const SamplingParams& params) {
  for (const NamedRow& row : rows()) expect_cheap(what, params, row, histories()[0].tokens);
}

TEST(Cost, NoRepeatNgramOfAnyLength) {
  for (const int32_t n : {1, 2, 16, kHistoryLen / 4, kHistoryLen / 2, kHistoryLen - 1, kHistoryLen, 1 << 30}) {
    expect_cheap_for_histories("no_repeat_ngram " + std::to_string(n), {.no_repeat_ngram = n});
  }
}

TEST(Cost, Penalties) {
  expect_cheap_for_histories("repetition", {.repetition_penalty = 1.5f});
  expect_cheap_for_histories("presence and frequency", {.presence_penalty = 1, .frequency_penalty = 1});
  for (const int32_t allowed : {1, 2, 100}) {
    expect_cheap_for_histories("dry " + std::to_string(allowed), {.dry_multiplier = 1, .dry_allowed_len = allowed});
  }
}

TEST(Cost, BreakersThatAreNeverQuiteThere) {
  // Every token is long, and all but begins every breaker.
  const auto tokenizer =
      std::make_shared<const SpelledTokens>(std::vector<std::string>(kVocabSize, std::string(32, 'a')));
  for (const bool at_end : {true, false}) {
    std::vector<std::string> texts;
    for (size_t i = 0; i < 64; ++i) {
      std::string text(BreakerSet::kMaxTextBytes - i / 2, 'a');
      (at_end ? text.back() : text.front()) = i % 2 == 0 ? 'b' : 'c';
      texts.push_back(text);
    }
    SamplingParams params{.dry_multiplier = 1};
    params.dry_breakers = BreakerSet::compile(texts, tokenizer).value();
    expect_cheap_for_histories(at_end ? "breakers that end otherwise" : "breakers that begin otherwise", params);
  }
}

TEST(Cost, BiasesAndMasks) {
  SamplingParams biased, banned, allowed, sequences;
  for (int32_t i = 0; i < kMaxTokenEntries; ++i) {
    biased.logit_bias.emplace_back(TokenId{i * 7 % kVocabSize}, 1.0f);
    if (i % kVocabSize != 1) banned.banned.push_back(TokenId{i % kVocabSize});
    allowed.allowed.push_back(TokenId{i * 7 % kVocabSize});
  }
  // As long as the history, and equal to its end but for one token.
  const auto& same = histories()[0].tokens;
  for (int32_t left = kMaxTokenEntries; left > 1;) {
    const auto n = static_cast<ptrdiff_t>(std::min(left, kHistoryLen));
    auto& sequence = sequences.banned_sequences.emplace_back(same.end() - n, same.end());
    const bool at_end = sequences.banned_sequences.size() % 2 == 0;
    (at_end ? sequence[sequence.size() - 2] : sequence.front()) = TokenId{8};
    left -= static_cast<int32_t>(n);
  }
  expect_cheap("logit_bias", biased, rows()[0], same);
  expect_cheap("banned", banned, rows()[0], same);
  expect_cheap("allowed", allowed, rows()[0], same);
  expect_cheap("banned_sequences", sequences, rows()[0], same);
}

TEST(Cost, Temperature) {
  expect_cheap_for_rows("temperature", {.temperature = 0.7f});
  expect_cheap_for_rows("dynatemp", {.temperature = 1.0f, .dynatemp_range = 0.5f, .dynatemp_exponent = 1.5f});
}

TEST(Cost, Truncation) {
  for (const int32_t k : {1, 100, kVocabSize / 3, kVocabSize - 1})
    expect_cheap_for_rows("top_k " + std::to_string(k), {.top_k = k});
  for (const float p : {0.5f, 0.99f, 0.999999f}) {
    expect_cheap_for_rows("top_p " + std::to_string(p), {.top_p = p});
    expect_cheap_for_rows("typical_p " + std::to_string(p), {.typical_p = p});
  }
  for (const float p : {1e-30f, 1e-5f, 0.5f}) expect_cheap_for_rows("min_p " + std::to_string(p), {.min_p = p});
  for (const float n : {1e-3f, 1.0f, 1000.0f})
    expect_cheap_for_rows("top_n_sigma " + std::to_string(n), {.top_n_sigma = n});
  for (const float t : {0.0f, 1e-5f, 0.5f})
    expect_cheap_for_rows("xtc " + std::to_string(t), {.xtc_probability = 1, .xtc_threshold = t});
  for (const int32_t version : {1, 2}) {
    for (const float tau : {1.0f, 10.0f, 1000.0f})
      expect_cheap_for_rows("mirostat " + std::to_string(version) + " tau " + std::to_string(tau),
                            {.mirostat = version, .mirostat_tau = tau});
  }
}

TEST(Cost, LogProbabilitiesOfManyTokens) {
  for (const int32_t n : {0, 20, 1000, kMaxLogprobs}) {
    expect_cheap_for_rows("logprobs " + std::to_string(n), {.logprobs = n});
    expect_cheap_for_rows("processed " + std::to_string(n), {.top_k = 1000, .logprobs = n, .processed_logprobs = true});
    expect_cheap_for_rows("of all " + std::to_string(n), {.logprobs = n, .processed_logprobs = true});
  }
}

}  // namespace
}  // namespace ibid
