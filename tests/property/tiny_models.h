// Tiny models and the requests that are asked of them under schedules: what tests of the promise share
// (exactness_test.cc, pinned_answers_test.cc).
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <set>

#include "kernels/isa.h"
#include "model/testing/loaded_model.h"
#include "pinned_bits.h"
#include "property/schedules.h"
#include "spelled_tokens.h"

namespace ibid::testing {

inline constexpr int32_t kContext = 336;  // more than one piece of attention (256 positions)
inline constexpr int32_t kMaxTokens = 320;
inline constexpr int32_t kMaxSequences = 8;
inline constexpr int32_t kVocabSize = 96;
inline constexpr TokenId kEnd{7}, kLetterA{5};  // of tiny_tokenizer: the end of generation, and what no other holds
inline constexpr DType kKvDtypes[] = {DType::kF32, DType::kF16, DType::kBF16};

// Of tiny_architectures() a model of each kind of layer, which slow tests and emulated machines run; or the others,
// which run by hand or on this machine alone.
inline std::vector<std::string_view> each_kind() {
  return {"llama", "gemma3", "qwen3moe", "lfm2", "qwen35", "gemma4", "gpt_oss", "deepseek2", "nemotron_h_moe", "bloom"};
}
inline std::vector<std::string_view> all_but_each_kind() {
  std::vector<std::string_view> out;
  std::ranges::copy_if(tiny_architectures(), std::back_inserter(out),
                       [](std::string_view a) { return std::ranges::count(each_kind(), a) == 0; });
  return out;
}

// Of one and two letters, most of them twice in each other, so that stop strings end within tokens and across them.
inline std::shared_ptr<const Tokenizer> tiny_tokenizer() {
  std::vector<std::string> tokens;
  for (int i = 0; i < kVocabSize; ++i) {
    tokens.emplace_back(1, static_cast<char>('b' + i % 25));
    if (i >= 25) tokens.back() += static_cast<char>('b' + i / 25);
  }
  tokens[static_cast<size_t>(raw(kLetterA))] = "a";
  return std::make_shared<const SpelledTokens>(std::move(tokens), std::vector{kEnd});
}

inline std::vector<Request> tiny_requests(int32_t vocab_size) {
  const auto text = some_tokens(kContext, vocab_size, 3);
  const auto other = some_tokens(kContext, vocab_size, 4);
  std::vector<Request> out(6);
  for (size_t i = 0; i < out.size(); ++i) {
    out[i].id = RequestId{i + 1};
    out[i].max_tokens = 8;
    out[i].sampling.seed = 100 * i;
    out[i].sampling.logprobs = 2;
    out[i].sampling.ignore_eos = true;
  }
  const auto first = [](const std::vector<TokenId>& from, int n) {
    return std::vector(from.begin(), from.begin() + n);
  };
  out[0].prompt = first(text, 37);
  out[0].sampling.temperature = 0;
  out[1].prompt = first(text, 48);  // three blocks of 16
  out[1].n = 2;
  out[2].prompt = first(text, 29);
  out[2].prompt.insert(out[2].prompt.end(), other.begin(), other.begin() + 30);
  out[2].sampling.top_p = 0.8f;
  out[2].sampling.repetition_penalty = 1.2f;
  out[3].prompt = first(other, 250);  // the answer crosses into the second piece of attention
  out[3].max_tokens = 10;
  out[4].prompt = first(other, 21);
  out[4].prompt_logprobs = 2;
  out[4].sampling.min_p = 0.02f;
  out[5].prompt = first(other, 1);
  out[5].max_tokens = 20;
  out[5].sampling.top_k = 20;
  return out;
}

// Features of a sequence and a sampler that drafts must not change, long enough for both to matter: penalties, learning
// samplers, bans, biases, stop strings, ends of generation (of tiny_tokenizer).
inline std::vector<Request> requests_with_memory(int32_t vocab_size) {
  std::vector<Request> out = tiny_requests(vocab_size);
  for (Request& r : out) r.max_tokens = 40;
  out[0].prompt.insert(out[0].prompt.end(), out[0].prompt.begin(), out[0].prompt.end());  // it repeats itself
  out[1].sampling.presence_penalty = 0.4f;
  out[1].sampling.frequency_penalty = 0.3f;
  out[2].sampling.dry_multiplier = 0.8f;
  out[3].sampling.no_repeat_ngram = 3;
  out[4].sampling.mirostat = 2;
  out[4].sampling.mirostat_tau = 3;
  out[5].sampling.xtc_probability = 0.5f;
  out[5].sampling.xtc_threshold = 0.05f;
  Request sure = out[0];
  sure.id = RequestId{7};
  sure.prompt.resize(30);
  sure.sampling.repetition_penalty = 1.3f;
  sure.sampling.min_tokens = 12;
  sure.sampling.ignore_eos = false;
  sure.sampling.logit_bias = {{TokenId{5}, 4.0f}};
  out.push_back(sure);
  for (size_t i = 0; i < 5; ++i) {  // five that may end by themselves, the learning ones among them
    Request r = out[1 + i];
    r.id = RequestId{8 + i};
    r.n = 1;
    r.sampling.seed += 50;
    r.sampling.ignore_eos = false;
    r.prompt.push_back(TokenId{static_cast<int32_t>(10 + i)});
    r.sampling.logit_bias.emplace_back(i == 1 || i == 3 ? kLetterA : kEnd, i < 3 ? 2.5F : 100.0F);
    if (i == 1) r.stops = StopSet::compile({"bq", "a", "dd"}).value();
    // Two that end early however sure the model is, the first by a string across tokens.
    if (i == 3) r.stops = StopSet::compile({"aaaaaaa"}).value();
    if (i == 4) r.sampling.min_tokens = 9;
    out.push_back(r);
  }
  return out;
}

// The most tokens of each part of a request.
struct Lengths {
  int prompt = 60, long_prompt = 200, own = 40, answer = 14;
};

// Requests of all kinds: beginnings that some share, samplers, choices, log-probabilities, lengths.
inline std::vector<Request> many_requests(int32_t vocab_size, size_t n, uint64_t seed, const Lengths& lengths = {}) {
  std::mt19937_64 random(seed);
  const auto up_to = [&random](int n_of) { return static_cast<int>(random() % static_cast<uint64_t>(n_of)); };
  const auto one_in = [&up_to](int n_of) { return up_to(n_of) == 0; };
  std::vector<std::vector<TokenId>> texts;
  for (uint32_t i = 0; i < 4; ++i) texts.push_back(some_tokens(kContext, vocab_size, 40 + i));
  std::vector<Request> out(n);
  for (size_t i = 0; i < n; ++i) {
    Request& r = out[i];
    r.id = RequestId{i + 1};
    const std::vector<TokenId>& text = texts[random() % texts.size()];
    r.prompt.assign(text.begin(), text.begin() + 1 + up_to(one_in(6) ? lengths.long_prompt : lengths.prompt));
    for (int own = one_in(2) ? up_to(lengths.own) : 0; own > 0; --own) r.prompt.push_back(TokenId{up_to(vocab_size)});
    r.max_tokens = 1 + up_to(lengths.answer);
    r.n = one_in(8) ? 2 + up_to(2) : 1;
    r.prompt_logprobs = one_in(8) ? up_to(3) : -1;
    SamplingParams& s = r.sampling;
    s.seed = random();
    s.ignore_eos = !one_in(4);
    s.temperature = one_in(4) ? 0 : 0.5f + static_cast<float>(up_to(10)) / 10;
    s.logprobs = up_to(4) - 1;
    if (one_in(4)) s.top_k = 1 + up_to(40);
    if (one_in(4)) s.top_p = 0.5f + static_cast<float>(up_to(5)) / 10;
    if (one_in(4)) s.min_p = 0.02f;
    if (one_in(4)) s.repetition_penalty = 1.1f;
    if (one_in(6)) s.presence_penalty = 0.5f;
    if (one_in(6)) s.min_tokens = up_to(r.max_tokens);
  }
  return out;
}

// One architecture and weight dtype: models for each ISA, one stream for each number of threads.
class TinyModels {
 public:
  TinyModels(std::string_view architecture, DType dtype, int32_t context_len = kContext) : context_len_(context_len) {
    const TinyModelOptions tiny = {.architecture = architecture,
                                   .dtype = dtype,
                                   .vocab_size = kVocabSize,
                                   .context_len = context_len,
                                   .window = 24};
    file_ = tiny_model_file(tiny);
  }
  ~TinyModels() { EXPECT_TRUE(select_isa(best()).ok()); }
  static Isa best() { return supported_isas().back(); }

  LoadedModel& load(Isa isa, int n_threads) {
    EXPECT_TRUE(select_isa(isa).ok());
    auto& slot = models_[{isa, n_threads}];
    if (!slot) {
      const ModelOptions options = {.context_len = context_len_,
                                    .step_tokens = kMaxTokens,
                                    .max_rows = kMaxSequences,
                                    .max_sequences = kMaxSequences};
      slot = std::make_unique<LoadedModel>(file_, options, n_threads);
    }
    return *slot;
  }

 private:
  int32_t context_len_;
  std::shared_ptr<const ModelFile> file_;
  std::map<std::pair<Isa, int>, std::unique_ptr<LoadedModel>> models_;
};

// Runs n_schedules of seeds from first_seed on; one in baseline_one_in of them on the baseline, which is slow.
inline void hold_to_schedules(std::string_view architecture, DType dtype, KvTypes kv_dtype, uint64_t first_seed,
                              uint64_t n_schedules, uint64_t baseline_one_in, Totals& totals,
                              const std::vector<Request>& requests = tiny_requests(kVocabSize),
                              std::optional<int32_t> first_kind = {},
                              const std::shared_ptr<const Tokenizer>& tokenizer = nullptr) {
  SCOPED_TRACE(std::string(architecture) + ", weights " + std::string(traits(dtype).name) + ", KV " + kv_dtype.name());
  TinyModels models(architecture, dtype);
  LoadedModel& best = models.load(TinyModels::best(), 1);
  const Digests expected = alone(*best.model, *best.stream, tokenizer, kv_dtype, kMaxTokens, requests);
  for (const std::string& digest : expected) note_bits(digest);
  // Among many, some short ones may be equal.
  EXPECT_GE(std::set<std::string>(expected.begin(), expected.end()).size(), requests.size() - requests.size() / 10);
  const std::vector<Isa> isas = supported_isas();
  for (uint64_t seed = first_seed; seed < first_seed + n_schedules; ++seed) {
    Schedule schedule = random_schedule(seed, kMaxTokens, kMaxSequences);
    // Preemption is drawn at random for the others, and with a latency target it depends on the clock; one schedule
    // always preempts.
    if (seed == first_seed) schedule.preempt_at = 4;
    if (first_kind) {  // each in turn, so that none is left out by chance
      schedule.drafts = static_cast<DraftKind>((*first_kind + static_cast<int32_t>(seed - first_seed)) % kDraftKinds);
      schedule.max_drafts = std::max(1, schedule.max_drafts);
      if (schedule.drafts == DraftKind::kAnswers) schedule.warmth = 2;  // it drafts from what was asked before
    }
    // Pairs of ISA and threads come round in turn, the slow baseline less often; the other choices are drawn.
    const bool baseline = isas.size() == 1 || seed % baseline_one_in == 0;
    const Isa isa = baseline ? isas.front() : isas[1 + seed % (isas.size() - 1)];
    const int n_threads = 1 + static_cast<int>(seed / 2 % 2);
    LoadedModel& m = models.load(isa, n_threads);
    schedule.is_recorded = seed % 5 == 0;
    ScheduleRun run(*m.model, *m.stream, tokenizer, kv_dtype, schedule, requests);
    const Digests actual = run.run(&totals);
    EXPECT_EQ(run.differences(), std::vector<std::string>()) << spelled(schedule);
    totals.n_replays += run.n_replays();
    EXPECT_EQ(actual, expected) << spelled(schedule) << ", " << isa_name(isa) << ", threads " << n_threads;
    if (::testing::Test::HasFailure()) return;
  }
}

}  // namespace ibid::testing
