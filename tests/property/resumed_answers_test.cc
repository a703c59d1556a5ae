// The promise beyond one process: an answer that is cut after any of its tokens and resumed on another engine, with
// another number of threads, instruction set, cache and schedule, goes on with the bytes that would have followed.
#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <vector>

#include "property/budget.h"
#include "property/tiny_models.h"

namespace ibid {
namespace {

using testing::kKvDtypes;
using testing::kMaxSequences;
using testing::kMaxTokens;
using testing::kVocabSize;
using testing::LoadedModel;
using testing::Schedule;
using testing::ScheduleRun;
using testing::TinyModels;
using testing::Transcript;

// An answer, a token an output.
struct Whole {
  std::vector<TokenRecord> records;
  std::vector<std::string> texts;  // that came with each token
  std::vector<float> mus;          // after each
  FinishReason reason = FinishReason::kNone;
  Usage usage;
};

Whole undisturbed(LoadedModel& m, const std::shared_ptr<const Tokenizer>& tokenizer, KvTypes kv_dtype,
                  const Request& r) {
  std::vector<TokenId> ends;
  if (tokenizer) ends = tokenizer->vocabulary().end_of_generation;
  EngineOptions options{.kv_dtype = kv_dtype, .step_tokens = kMaxTokens, .max_sequences = 1, .prefix_cache = false};
  auto engine = Engine::create(std::make_unique<ModelPass>(*m.model, *m.stream, ends, "digest"), tokenizer, *m.stream,
                               options, steady_clock())
                    .value();
  CHECK(engine->submit(r).ok());
  Whole whole;
  std::vector<Output> out;
  while (engine->step(out)) {
    for (Output& o : out) {
      const bool is_over = o.tokens.empty() && o.finished && o.text.empty();  // it was when it was resumed
      CHECK(o.reason != FinishReason::kError && (o.tokens.size() == 1 || is_over));
      if (o.finished) whole.reason = o.reason;
      whole.usage = o.usage;
      if (is_over) break;
      whole.records.push_back(std::move(o.tokens.front()));
      whole.texts.push_back(o.text);
      whole.mus.push_back(o.mirostat_mu);
    }
    out.clear();
  }
  return whole;
}

// What a client hears after the first n tokens.
std::string rest_of(const Whole& whole, size_t n) {
  Transcript rest;
  for (size_t i = n; i < whole.records.size(); ++i) {
    Output o;
    o.tokens.push_back(whole.records[i]);
    o.text = whole.texts[i];
    rest.hear(o);
  }
  Output last;
  last.finished = true;
  last.reason = whole.reason;
  rest.hear(last);
  return rest.digest();
}

// Of one choice each, and without what is of the prompt.
std::vector<Request> requests_to_cut(uint64_t seed) {
  std::vector<Request> out = testing::requests_with_memory(kVocabSize);
  for (Request& r : testing::many_requests(kVocabSize, 6, seed)) out.push_back(std::move(r));
  for (size_t i = 0; i < out.size(); ++i) {
    out[i].id = RequestId{i + 1};
    out[i].n = 1;
    out[i].prompt_logprobs = -1;
  }
  return out;
}

void hold_to_cuts(std::string_view architecture, DType dtype, KvTypes kv_dtype, uint64_t first_seed,
                  uint64_t n_schedules, testing::Totals& totals) {
  SCOPED_TRACE(std::string(architecture) + ", weights " + std::string(traits(dtype).name) + ", KV " + kv_dtype.name());
  const auto tokenizer = testing::tiny_tokenizer();
  TinyModels models(architecture, dtype);
  LoadedModel& best = models.load(TinyModels::best(), 1);
  const std::vector<Request> requests = requests_to_cut(first_seed);
  std::vector<Whole> answers;
  for (const Request& r : requests) answers.push_back(undisturbed(best, tokenizer, kv_dtype, r));
  const std::vector<Isa> isas = supported_isas();
  for (uint64_t seed = first_seed; seed < first_seed + n_schedules; ++seed) {
    std::mt19937_64 random(seed);
    std::vector<Request> cut = requests;
    std::vector<size_t> places;
    testing::Digests expected;
    for (size_t i = 0; i < cut.size(); ++i) {
      const Whole& whole = answers[i];
      size_t n = random() % (whole.records.size() + 1);
      // A replay without text does not find the stop string that ended an answer with its last token.
      if (seed % 4 == 0 && whole.reason == FinishReason::kStop) n = whole.records.size();
      for (size_t t = 0; t < n; ++t) cut[i].resume.tokens.push_back(whole.records[t].chosen.token);
      if (cut[i].sampling.mirostat != 0 && n > 0) cut[i].resume.mirostat_mu = whole.mus[n - 1];
      places.push_back(n);
      expected.push_back(rest_of(whole, n));
    }
    Schedule schedule = testing::random_schedule(seed, kMaxTokens, kMaxSequences);
    schedule.is_recorded = seed % 4 == 0;
    LoadedModel& m = models.load(isas[seed % isas.size()], 1 + static_cast<int>(seed / 2 % 2));
    ScheduleRun run(*m.model, *m.stream, tokenizer, kv_dtype, schedule, cut);
    const testing::Digests actual = run.run(&totals);
    EXPECT_EQ(run.differences(), std::vector<std::string>()) << spelled(schedule);
    totals.n_replays += run.n_replays();
    for (size_t i = 0; i < cut.size(); ++i) {
      EXPECT_EQ(actual[i], expected[i]) << "request " << i << " cut after " << places[i] << " of "
                                        << answers[i].records.size() << " tokens; " << spelled(schedule);
    }
    if (::testing::Test::HasFailure()) return;
  }
}

TEST(ResumedAnswers, GoOnWithTheSameBytesWhereverTheyWereCut) {
  testing::Totals totals;
  hold_to_cuts("llama", DType::kQ8_0, DType::kF16, 70000, 16, totals);
  hold_to_cuts("qwen35", DType::kF32, DType::kF32, 70100, 6, totals);
  hold_to_cuts("gemma3", DType::kQ4_0, DType::kBF16, 70200, 6, totals);
  EXPECT_GT(totals.n_preemptions, 0);
  EXPECT_GT(totals.cached_tokens, 0);
  EXPECT_GT(totals.n_accepted, 20);
  EXPECT_GT(totals.n_replays, 5);
  EXPECT_TRUE(totals.reasons.contains(FinishReason::kEos) && totals.reasons.contains(FinishReason::kStop) &&
              totals.reasons.contains(FinishReason::kLength));
}

// Every cut of an answer that a stop string ends across tokens, of one that ends itself after min_tokens, and of one
// that mirostat draws; the tokens so far count as the answer's.
TEST(ResumedAnswers, CountTheTokensThatTheyBring) {
  TinyModels models("llama", DType::kQ8_0);
  LoadedModel& m = models.load(TinyModels::best(), 1);
  const auto tokenizer = testing::tiny_tokenizer();
  int n_over = 0;
  for (const Request& r : requests_to_cut(7)) {
    const Whole whole = undisturbed(m, tokenizer, DType::kF16, r);
    for (size_t n = 0; n <= whole.records.size(); n += 1 + n / 4) {
      Request cut = r;
      for (size_t t = 0; t < n; ++t) cut.resume.tokens.push_back(whole.records[t].chosen.token);
      if (r.sampling.mirostat != 0 && n > 0) cut.resume.mirostat_mu = whole.mus[n - 1];
      const Whole rest = undisturbed(m, tokenizer, DType::kF16, cut);
      EXPECT_EQ(rest.usage.completion_tokens, whole.usage.completion_tokens);
      EXPECT_EQ(rest.usage.resumed_tokens, static_cast<int32_t>(n));
      EXPECT_EQ(rest.usage.prompt_tokens, static_cast<int32_t>(r.prompt.size()));
      ASSERT_EQ(rest.records.size(), whole.records.size() - n);
      for (size_t i = n; i < whole.records.size(); ++i) {
        EXPECT_EQ(rest.records[i - n].position, whole.records[i].position);
        EXPECT_EQ(rest.mus[i - n], whole.mus[i]);
      }
      n_over += n == whole.records.size();
    }
  }
  EXPECT_GT(n_over, 0);
}

class SlowResumedAnswers : public ::testing::TestWithParam<std::string_view> {};

TEST_P(SlowResumedAnswers, GoOnWithTheSameBytesWhereverTheyWereCut) {
  const auto architectures = testing::tiny_architectures();
  const auto dtypes = testing::tiny_dtypes();
  const auto i = static_cast<size_t>(std::ranges::find(architectures, GetParam()) - architectures.begin());
  testing::Totals totals;
  hold_to_cuts(GetParam(), dtypes[i % dtypes.size()], kKvDtypes[i % 3], 80000 + 100 * i, testing::n_cases(24), totals);
  EXPECT_GT(totals.n_preemptions, 0);
}
INSTANTIATE_TEST_SUITE_P(SlowArchitectures, SlowResumedAnswers, ::testing::ValuesIn(testing::each_kind()),
                         [](const auto& param_info) { return std::string(param_info.param); });

}  // namespace
}  // namespace ibid
