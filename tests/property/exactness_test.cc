// The promise (docs/design.md section 5): a request's tokens and log-probabilities are the same bytes whatever the
// schedule. Tiny random models of every architecture here; the default model in default_model_test.cc.
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "kernels/isa.h"
#include "model/testing/loaded_model.h"
#include "pinned_bits.h"
#include "schedules.h"

namespace ibid {
namespace {

using testing::Digests;
using testing::LoadedModel;
using testing::Schedule;
using testing::ScheduleRun;

constexpr int32_t kContext = 336;  // more than one piece of attention (256 positions)
constexpr int32_t kMaxTokens = 320;
constexpr int32_t kMaxSequences = 8;
constexpr DType kKvDtypes[] = {DType::kF32, DType::kF16, DType::kBF16};

std::vector<Request> tiny_requests(int32_t vocab_size) {
  const auto text = testing::some_tokens(kContext, vocab_size, 3);
  const auto other = testing::some_tokens(kContext, vocab_size, 4);
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

// Requests of all kinds: beginnings that some share, samplers, choices, log-probabilities, lengths.
std::vector<Request> many_requests(int32_t vocab_size, size_t n, uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto up_to = [&random](int n_of) { return static_cast<int>(random() % static_cast<uint64_t>(n_of)); };
  const auto one_in = [&up_to](int n_of) { return up_to(n_of) == 0; };
  std::vector<std::vector<TokenId>> texts;
  for (uint32_t i = 0; i < 4; ++i) texts.push_back(testing::some_tokens(kContext, vocab_size, 40 + i));
  std::vector<Request> out(n);
  for (size_t i = 0; i < n; ++i) {
    Request& r = out[i];
    r.id = RequestId{i + 1};
    const std::vector<TokenId>& text = texts[random() % texts.size()];
    r.prompt.assign(text.begin(), text.begin() + 1 + up_to(one_in(6) ? 200 : 60));
    for (int own = one_in(2) ? up_to(40) : 0; own > 0; --own) r.prompt.push_back(TokenId{up_to(vocab_size)});
    r.max_tokens = 1 + up_to(14);
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
  TinyModels(std::string_view architecture, DType dtype) {
    const testing::TinyModelOptions tiny = {
        .architecture = architecture, .dtype = dtype, .context_len = kContext, .window = 24};
    file_ = testing::tiny_model_file(tiny);
  }
  ~TinyModels() { EXPECT_TRUE(select_isa(best()).ok()); }
  static Isa best() { return supported_isas().back(); }

  LoadedModel& load(Isa isa, int n_threads) {
    EXPECT_TRUE(select_isa(isa).ok());
    auto& slot = models_[{isa, n_threads}];
    if (!slot) {
      const ModelOptions options = {.context_len = kContext,
                                    .step_tokens = kMaxTokens,
                                    .max_rows = kMaxSequences,
                                    .max_sequences = kMaxSequences};
      slot = std::make_unique<LoadedModel>(file_, options, n_threads);
    }
    return *slot;
  }

 private:
  std::shared_ptr<const ModelFile> file_;
  std::map<std::pair<Isa, int>, std::unique_ptr<LoadedModel>> models_;
};

void hold_to_schedules(std::string_view architecture, DType dtype, DType kv_dtype, uint64_t first_seed,
                       uint64_t n_schedules, uint64_t baseline_one_in, testing::Totals& totals, size_t n_requests = 0) {
  SCOPED_TRACE(std::string(architecture) + ", weights " + std::string(traits(dtype).name) + ", KV " +
               std::string(traits(kv_dtype).name));
  TinyModels models(architecture, dtype);
  LoadedModel& best = models.load(TinyModels::best(), 1);
  const auto vocab_size = static_cast<int32_t>(best.model->config().vocab_size);
  const auto requests = n_requests == 0 ? tiny_requests(vocab_size) : many_requests(vocab_size, n_requests, first_seed);
  const Digests expected = testing::alone(*best.model, *best.stream, nullptr, kv_dtype, kMaxTokens, requests);
  for (const std::string& digest : expected) note_bits(digest);
  if (n_requests == 0) {
    EXPECT_GE(std::set<std::string>(expected.begin(), expected.end()).size(), requests.size());
  }
  const std::vector<Isa> isas = supported_isas();
  for (uint64_t seed = first_seed; seed < first_seed + n_schedules; ++seed) {
    const Schedule schedule = testing::random_schedule(seed, kMaxTokens, kMaxSequences);
    // Pairs of ISA and threads come round in turn, the slow baseline less often; the other choices are drawn.
    const bool baseline = isas.size() == 1 || seed % baseline_one_in == 0;
    const Isa isa = baseline ? isas.front() : isas[1 + seed % (isas.size() - 1)];
    const int n_threads = 1 + static_cast<int>(seed / 2 % 2);
    LoadedModel& m = models.load(isa, n_threads);
    const Digests actual = ScheduleRun(*m.model, *m.stream, nullptr, kv_dtype, schedule, requests).run(&totals);
    EXPECT_EQ(actual, expected) << spelled(schedule) << ", " << isa_name(isa) << ", threads " << n_threads;
    if (::testing::Test::HasFailure()) return;
  }
}

// Few schedules, so that slow machines (emulated ones, tests/house/arm64.sh) can be held to the pinned answers.
TEST(TinyModels, OfEveryShapeSayWhatIsPinned) {
  testing::Totals totals;
  for (const std::string_view architecture : {"llama", "gemma3"}) {
    hold_to_schedules(architecture, DType::kQ4_K, DType::kF16, 30001, 3, 1000, totals);
  }
  EXPECT_EQ(totals.n_schedules, 6);
}

class TinyModel : public ::testing::TestWithParam<std::string_view> {};

// Sixteen schedules for each of four weight dtypes; all dtypes come up among the architectures.
TEST_P(TinyModel, SaysTheSameUnderSixtyFourSchedules) {
  const auto architectures = testing::tiny_architectures();
  const auto dtypes = testing::tiny_dtypes();
  const size_t index = static_cast<size_t>(std::ranges::find(architectures, GetParam()) - architectures.begin());
  testing::Totals totals;
  for (size_t i = 0; i < 4; ++i) {
    const size_t turn = index * 4 + i;
    hold_to_schedules(GetParam(), dtypes[turn % dtypes.size()], kKvDtypes[turn % 3], 1 + turn * 16, 16, 32, totals);
  }
  EXPECT_EQ(totals.n_schedules, 64);
  EXPECT_GT(totals.n_preemptions, 0);
  EXPECT_GT(totals.cached_tokens, 0);
  EXPECT_GT(totals.n_accepted, 20);
  EXPECT_GT(totals.n_blocks_up, 0);
  EXPECT_GT(totals.n_fetched, 0);
}
// Paused behind its k-th step, whichever that is, it goes on as if nothing had been: computed again, or from the host.
TEST_P(TinyModel, GoesOnAlikePausedAtEveryStep) {
  TinyModels models(GetParam(), DType::kF32);
  LoadedModel& m = models.load(TinyModels::best(), 1);
  const auto all = tiny_requests(static_cast<int32_t>(m.model->config().vocab_size));
  for (const size_t i : {0, 1, 4}) {
    const std::vector<Request> one = {all[i]};
    const Digests expected = testing::alone(*m.model, *m.stream, nullptr, DType::kF16, kMaxTokens, one);
    int32_t n_paused = 0;
    for (int32_t step = 0;; ++step) {
      Schedule schedule = {.seed = 1, .step_tokens = kMaxSequences, .prefix_cache = step % 3 != 0};
      schedule.n_host_contexts = step % 3 == 1;
      schedule.preempt_at = step;
      ScheduleRun run(*m.model, *m.stream, nullptr, DType::kF16, schedule, one);
      EXPECT_EQ(run.run(), expected) << "request " << i << " paused behind step " << step;
      if (run.n_paused() == 0 || HasFailure()) break;
      n_paused += run.n_paused();
    }
    EXPECT_GE(n_paused, all[i].max_tokens) << "each token, and the prompt's pieces";
  }
}
INSTANTIATE_TEST_SUITE_P(Architectures, TinyModel, ::testing::ValuesIn(testing::tiny_architectures()),
                         [](const auto& param_info) { return std::string(param_info.param); });

// Remembers where the blocks of the first sequence of the last batch lay.
class Watched final : public ForwardPass {
 public:
  Watched(Model& model, Stream& stream, std::vector<BlockId>& table) : pass_(model, stream, {}, ""), table_(table) {}
  const ModelFacts& facts() const override { return pass_.facts(); }
  void run(const ForwardBatch& batch, std::span<const PagedKv> kv, const TensorView& logits,
           const HiddenStates& hidden) override {
    table_.assign(batch.blocks(0).begin(), batch.blocks(0).end());
    pass_.run(batch, kv, logits, hidden);
  }

 private:
  ModelPass pass_;
  std::vector<BlockId>& table_;
};

// Row C6: a position is where it is in its sequence, whatever slot it has.
TEST(TinyModels, PhysicalBlocksDoNotShowInTheBits) {
  TinyModels models("llama", DType::kQ8_0);
  LoadedModel& m = models.load(TinyModels::best(), 1);
  Request r = tiny_requests(static_cast<int32_t>(m.model->config().vocab_size))[3];
  std::set<std::vector<BlockId>> tables;
  std::set<std::string> digests;
  for (int n_before = 0; n_before < 6; ++n_before) {
    std::vector<BlockId> table;
    EngineOptions options{.step_tokens = 64, .max_sequences = 8, .prefix_cache = false};
    auto core = Engine::create(std::make_unique<Watched>(*m.model, *m.stream, table), nullptr, *m.stream, options,
                               steady_clock())
                    .value();
    // Others come and go in an order that leaves the free list shuffled.
    std::vector<Output> out;
    for (int i = 0; i < n_before; ++i) {
      Request other = r;
      other.id = RequestId{100 + static_cast<uint64_t>(i)};
      other.prompt.resize(static_cast<size_t>(30 + 17 * i));
      other.max_tokens = 1 + 3 * (i % 3);
      ASSERT_TRUE(core->submit(std::move(other)).ok());
    }
    while (core->step(out)) {
    }
    out.clear();
    ASSERT_TRUE(core->submit(r).ok());
    testing::Transcript transcript;
    while (core->step(out)) {
      for (const Output& o : out) transcript.hear(o);
      out.clear();
    }
    tables.insert(table);
    digests.insert(transcript.digest());
  }
  EXPECT_GE(tables.size(), 3u);
  EXPECT_EQ(digests.size(), 1u);
}

// What a text and a sampler can have that drafts must not change, long enough for both to matter.
std::vector<Request> requests_with_memory(int32_t vocab_size) {
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
  return out;
}

// Law 4: one SHA-256 of tokens, log-probabilities and text with drafts of any kind and without, for all
// requests together and one after the other.
TEST(TinyModels, SayTheSameWithDraftsOfAnyKind) {
  TinyModels models("llama", DType::kQ8_0);
  LoadedModel& m = models.load(TinyModels::best(), 1);
  const auto requests = requests_with_memory(static_cast<int32_t>(m.model->config().vocab_size));
  const Digests expected = testing::alone(*m.model, *m.stream, nullptr, DType::kF16, kMaxTokens, requests);
  for (int32_t kind = 0; kind < testing::kDraftKinds; ++kind) {
    testing::Totals totals;
    for (int32_t k = 1; k <= 16; k += k < 4 ? 1 : 6) {
      for (const int32_t n_places : {1, 5}) {
        Schedule schedule = {
            .seed = static_cast<uint64_t>(100 * kind + k), .step_tokens = 64, .max_sequences = n_places};
        schedule.max_drafts = k;
        schedule.drafts = static_cast<testing::DraftKind>(kind);
        schedule.block_len = k % 2 == 0 ? 8 : 16;
        // They guess from what was asked before.
        if (schedule.drafts == testing::DraftKind::kAnswers) schedule.warmth = 2;
        EXPECT_EQ(ScheduleRun(*m.model, *m.stream, nullptr, DType::kF16, schedule, requests).run(&totals), expected)
            << spelled(schedule);
      }
    }
    EXPECT_GT(totals.n_drafted, 20) << kind;
    const auto is = [kind](testing::DraftKind of) { return kind == static_cast<int32_t>(of); };
    if (is(testing::DraftKind::kWrong)) {
      EXPECT_EQ(totals.n_accepted, 0);
    } else if (is(testing::DraftKind::kItself)) {
      EXPECT_EQ(totals.n_accepted, totals.n_drafted);
    } else if (!is(testing::DraftKind::kRandom) && !is(testing::DraftKind::kHeads) && !is(testing::DraftKind::kEagle) &&
               !is(testing::DraftKind::kSkip) && !is(testing::DraftKind::kMtp)) {
      EXPECT_GT(totals.n_accepted, 20) << kind;
    }
  }
}

// Rejection's answers depend on what was drafted: that may not depend on what the prefix cache knows of a prompt, which
// a head with attention is not told of unless it is computed again, nor on how a prompt was cut.
TEST(TinyModels, AnswerRejectionTheSameWhateverTheCacheKnowsOfAnEaglesText) {
  TinyModels models("llama", DType::kQ8_0);
  LoadedModel& m = models.load(TinyModels::best(), 1);
  auto requests = tiny_requests(static_cast<int32_t>(m.model->config().vocab_size));
  requests.resize(3);
  for (Request& r : requests) {
    r.speculation.verifier = Verifier::kRejection;
    r.n = 1;
    r.sampling = {.temperature = 0.9F, .seed = 5};
    r.prompt_logprobs = -1;
    r.max_tokens = 40;
  }
  std::set<Digests> digests;
  for (const int32_t step_tokens : {16, 64}) {
    for (const int32_t warmth : {0, 1, 2}) {
      // The seed is the head's too.
      Schedule schedule = {
          .seed = 7, .step_tokens = step_tokens, .max_sequences = 1, .warmth = warmth, .max_drafts = 4};
      schedule.drafts = testing::DraftKind::kEagle;
      testing::Totals totals;
      digests.insert(ScheduleRun(*m.model, *m.stream, nullptr, DType::kF16, schedule, requests).run(&totals));
      EXPECT_GT(totals.n_drafted, 100);
    }
  }
  EXPECT_EQ(digests.size(), 1U);
}

class SlowTinyModel : public TinyModel {};

TEST_P(SlowTinyModel, SaysTheSameToSeventyTwoRequests) {
  const auto architectures = testing::tiny_architectures();
  const auto dtypes = testing::tiny_dtypes();
  const size_t i = static_cast<size_t>(std::ranges::find(architectures, GetParam()) - architectures.begin());
  testing::Totals totals;
  hold_to_schedules(GetParam(), dtypes[i % dtypes.size()], kKvDtypes[i % 3], 20000 + 100 * i, 10, 6, totals, 72);
  EXPECT_EQ(totals.n_schedules, 10);
  EXPECT_GT(totals.n_preemptions, 0);
  EXPECT_GT(totals.n_fetched, 0);
}
INSTANTIATE_TEST_SUITE_P(SlowArchitectures, SlowTinyModel, ::testing::ValuesIn(testing::tiny_architectures()),
                         [](const auto& param_info) { return std::string(param_info.param); });

TEST(SlowTinyModels, SayTheSameForEveryArchitectureWeightAndKvDtype) {
  testing::Totals totals;
  uint64_t seed = 10000;
  for (const std::string_view architecture : testing::tiny_architectures()) {
    for (const DType dtype : testing::tiny_dtypes()) {
      for (const DType kv_dtype : kKvDtypes) {
        hold_to_schedules(architecture, dtype, kv_dtype, seed, 8, 6, totals);
        seed += 8;
        if (HasFailure()) return;
      }
    }
  }
  printf("%lld schedules, %lld steps, %lld preemptions, %lld tokens from the cache\n",
         static_cast<long long>(totals.n_schedules), static_cast<long long>(totals.n_steps),
         static_cast<long long>(totals.n_preemptions), static_cast<long long>(totals.cached_tokens));
}

}  // namespace
}  // namespace ibid
