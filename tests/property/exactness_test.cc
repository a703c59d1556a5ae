// The promise (docs/design.md section 5): a request's tokens and log-probabilities are the same bytes whatever the
// schedule. Tiny random models of every architecture here; the default model in default_model_test.cc.
#include <gtest/gtest.h>

#include "property/budget.h"
#include "property/tiny_models.h"

namespace ibid {
namespace {

// Answers that end early end within drafts.
const std::set<FinishReason> kOwnEnds = {FinishReason::kEos, FinishReason::kStop, FinishReason::kLength};

using testing::Digests;
using testing::hold_to_schedules;
using testing::kKvDtypes;
using testing::kMaxSequences;
using testing::kMaxTokens;
using testing::kVocabSize;
using testing::LoadedModel;
using testing::Schedule;
using testing::ScheduleRun;
using testing::tiny_requests;
using testing::TinyModels;

class TinyModel : public ::testing::TestWithParam<std::string_view> {};

// Five schedules for each of four weight dtypes, or twenty by hand; all dtypes come up among the architectures.
TEST_P(TinyModel, AnswersTheSameUnderAnySchedule) {
  const int n = testing::n_cases(20);
  const auto architectures = testing::tiny_architectures();
  const auto dtypes = testing::tiny_dtypes();
  const size_t index = static_cast<size_t>(std::ranges::find(architectures, GetParam()) - architectures.begin());
  testing::Totals totals;
  for (size_t i = 0; i < 4; ++i) {
    const size_t turn = index * 4 + i;
    hold_to_schedules(GetParam(), dtypes[turn % dtypes.size()], kKvDtypes[turn % 3], 1 + turn * 20,
                      static_cast<uint64_t>(n), 32, totals, testing::tiny_requests(testing::kVocabSize),
                      static_cast<int32_t>(i) * n);
  }
  EXPECT_EQ(totals.n_schedules, 4 * n);
  EXPECT_GT(totals.n_preemptions, 0);
  EXPECT_GT(totals.cached_tokens, 0);
  EXPECT_GT(totals.n_accepted, 5);
  EXPECT_GE(totals.n_replays, 4) << "of records";
  if (!testing::draws_all_cases()) return;
  // Drafts of these are verified if they pay by the clock; all others are verified regardless of cost.
  const std::set<testing::DraftKind> priced = {testing::DraftKind::kLookup, testing::DraftKind::kStore,
                                               testing::DraftKind::kAnswers};
  for (int32_t i = 0; i < testing::kDraftKinds; ++i) {
    const auto kind = static_cast<testing::DraftKind>(i);
    EXPECT_TRUE(totals.drafted.contains(kind) || priced.contains(kind)) << "no drafts of kind " << i;
  }
  EXPECT_GT(totals.n_blocks_up, 0);
  EXPECT_GT(totals.n_fetched, 0);
}
// Paused after its k-th step, for any k, it goes on unchanged: recomputed, or restored from the host.
TEST_P(TinyModel, GoesOnAlikePausedAtEveryStep) {
  TinyModels models(GetParam(), DType::kF32);
  LoadedModel& m = models.load(TinyModels::best(), 1);
  const auto all = tiny_requests(kVocabSize);
  for (const size_t i : {0, 1, 4}) {
    const std::vector<Request> one = {all[i]};
    const Digests expected = testing::alone(*m.model, *m.stream, nullptr, DType::kF16, kMaxTokens, one);
    int32_t n_paused = 0;
    for (int32_t step = 0;; ++step) {
      Schedule schedule = {.seed = 1, .step_tokens = kMaxSequences, .prefix_cache = step % 3 != 0};
      schedule.n_host_contexts = step % 3 == 1;
      schedule.preempt_at = step;
      ScheduleRun run(*m.model, *m.stream, nullptr, DType::kF16, schedule, one);
      EXPECT_EQ(run.run(), expected) << "request " << i << " paused after step " << step;
      if (run.n_paused() == 0 || HasFailure()) break;
      n_paused += run.n_paused();
    }
    EXPECT_GE(n_paused, all[i].max_tokens) << "each token, and the prompt's pieces";
  }
}
INSTANTIATE_TEST_SUITE_P(Architectures, TinyModel, ::testing::ValuesIn(testing::tiny_architectures()),
                         [](const auto& param_info) { return std::string(param_info.param); });

// Records the places of the blocks of the last batch's first sequence.
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

// Row C6: a position is its index in the sequence, independent of its slot.
TEST(TinyModels, PhysicalBlocksDoNotShowInTheBits) {
  TinyModels models("llama", DType::kQ8_0);
  LoadedModel& m = models.load(TinyModels::best(), 1);
  Request r = tiny_requests(kVocabSize)[3];
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

// Law 4: one SHA-256 of tokens, log-probabilities and text with drafts of any kind and without, for all
// requests together and one after the other.
TEST(TinyModels, AnswerTheSameWithDraftsOfAnyKind) {
  TinyModels models("llama", DType::kQ8_0);
  LoadedModel& m = models.load(TinyModels::best(), 1);
  const auto requests = testing::requests_with_memory(kVocabSize);
  const auto tokenizer = testing::tiny_tokenizer();
  const Digests expected = testing::alone(*m.model, *m.stream, tokenizer, DType::kF16, kMaxTokens, requests);
  for (int32_t kind = 0; kind < testing::kDraftKinds; ++kind) {
    testing::Totals totals;
    for (int32_t k = 1; k <= 16; k += k < 4 ? 1 : 6) {
      for (const int32_t n_places : {1, 5}) {
        Schedule schedule = {
            .seed = static_cast<uint64_t>(100 * kind + k), .step_tokens = 64, .max_sequences = n_places};
        schedule.max_drafts = k;
        schedule.drafts = static_cast<testing::DraftKind>(kind);
        schedule.block_len = k % 2 == 0 ? 8 : 16;
        // They draft from earlier answers.
        if (schedule.drafts == testing::DraftKind::kAnswers) schedule.warmth = 2;
        schedule.is_recorded = k == 3;
        ScheduleRun run(*m.model, *m.stream, tokenizer, DType::kF16, schedule, requests);
        EXPECT_EQ(run.run(&totals), expected) << spelled(schedule);
        EXPECT_EQ(run.differences(), std::vector<std::string>()) << spelled(schedule);
      }
    }
    EXPECT_GT(totals.n_drafted, 20) << kind;
    EXPECT_EQ(totals.reasons, kOwnEnds);
    const auto is = [kind](testing::DraftKind of) { return kind == static_cast<int32_t>(of); };
    if (is(testing::DraftKind::kWrong)) {
      EXPECT_EQ(totals.n_accepted, 0);
    } else if (is(testing::DraftKind::kItself)) {
      // Everything except the text after a stop string.
      EXPECT_GE(totals.n_accepted * 100, totals.n_drafted * 99);
    } else if (!is(testing::DraftKind::kRandom) && !is(testing::DraftKind::kHeads) && !is(testing::DraftKind::kEagle) &&
               !is(testing::DraftKind::kSkip) && !is(testing::DraftKind::kMtp)) {
      EXPECT_GT(totals.n_accepted, 20) << kind;
    }
  }
}

// Answers under rejection depend on the drafts: these must not depend on the prefix cache's hits for a prompt, of which
// a head with attention gets no states unless they are recomputed, nor on how a prompt was cut.
TEST(TinyModels, AnswerRejectionTheSameWhateverTheCacheKnowsOfAnEaglesSequence) {
  TinyModels models("llama", DType::kQ8_0);
  LoadedModel& m = models.load(TinyModels::best(), 1);
  auto requests = tiny_requests(kVocabSize);
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

TEST_P(SlowTinyModel, AnswersSeventyTwoRequestsTheSame) {
  const auto architectures = testing::tiny_architectures();
  const auto dtypes = testing::tiny_dtypes();
  const size_t i = static_cast<size_t>(std::ranges::find(architectures, GetParam()) - architectures.begin());
  testing::Totals totals;
  hold_to_schedules(GetParam(), dtypes[i % dtypes.size()], kKvDtypes[i % 3], 20000 + 100 * i, 10, 6, totals,
                    testing::many_requests(kVocabSize, 72, 20000 + 100 * i));
  EXPECT_EQ(totals.n_schedules, 10);
  EXPECT_GT(totals.n_preemptions, 0);
  EXPECT_GT(totals.n_fetched, 0);
}
// Each kind of drafts once, in a schedule of its own, with stateful samplers and answers that end early.
TEST_P(SlowTinyModel, AnswersTheSameWithMemoryAndDraftsOfAnyKind) {
  const auto architectures = testing::tiny_architectures();
  const auto dtypes = testing::tiny_dtypes();
  const auto i = static_cast<size_t>(std::ranges::find(architectures, GetParam()) - architectures.begin());
  testing::Totals totals;
  for (size_t turn = 2 * i; turn < 2 * i + 2; ++turn) {
    hold_to_schedules(GetParam(), dtypes[(turn + 5) % dtypes.size()], kKvDtypes[(turn + i) % 3], 30000 + 100 * turn,
                      testing::kDraftKinds, 100, totals, testing::requests_with_memory(kVocabSize), 0,
                      testing::tiny_tokenizer());
  }
  EXPECT_EQ(totals.n_schedules, 2 * testing::kDraftKinds);
  EXPECT_GT(totals.n_preemptions, 0);
  EXPECT_GT(totals.n_accepted, 100);
  EXPECT_EQ(totals.reasons, kOwnEnds);
}
const auto kNamed = [](const auto& param_info) { return std::string(param_info.param); };
INSTANTIATE_TEST_SUITE_P(SlowArchitectures, SlowTinyModel, ::testing::ValuesIn(testing::each_kind()), kNamed);
INSTANTIATE_TEST_SUITE_P(ByHandArchitectures, SlowTinyModel, ::testing::ValuesIn(testing::all_but_each_kind()), kNamed);

// Keys and values as codes: prefix hits, preemption, tiers, forks, drafts and trees, with layers of each kind that has
// heads.
class CodesOfKv : public ::testing::TestWithParam<std::string_view> {
 protected:
  void hold_to_twelve_schedules(KvTypes types, uint64_t first_seed);
};
void CodesOfKv::hold_to_twelve_schedules(KvTypes types, uint64_t first_seed) {
  testing::Totals totals;
  const auto architectures = testing::tiny_architectures();
  const auto i = std::ranges::find(architectures, GetParam()) - architectures.begin();
  hold_to_schedules(GetParam(), DType::kQ8_0, types, first_seed + 16 * static_cast<uint64_t>(i), 12, 12, totals,
                    tiny_requests(kVocabSize), static_cast<int32_t>(i));
  EXPECT_EQ(totals.n_schedules, 12);
  EXPECT_GT(totals.n_preemptions, 0);
  EXPECT_GT(totals.cached_tokens, 0);
}
TEST_P(CodesOfKv, AnswersTheSameUnderTwelveSchedules) { hold_to_twelve_schedules(KvType::kI8, 60000); }
TEST_P(CodesOfKv, OfE4M3AnswersTheSame) { hold_to_twelve_schedules({KvType::kF8, KvType::kI8}, 63000); }
TEST_P(CodesOfKv, OfFourBitsForValuesAnswersTheSame) { hold_to_twelve_schedules({KvType::kI8, KvType::kI4}, 61000); }
TEST_P(CodesOfKv, OfFourBitsAnswersTheSame) { hold_to_twelve_schedules(KvType::kI4, 62000); }
INSTANTIATE_TEST_SUITE_P(Kinds, CodesOfKv,
                         ::testing::Values("llama", "gemma3", "qwen3moe", "lfm2", "qwen35", "gemma4", "gpt_oss",
                                           "nemotron_h_moe", "bloom"),
                         kNamed);

// A third of all pairs, with a KV dtype in turn: every architecture meets a third of the weight dtypes, and every dtype
// a third of the architectures.
TEST(SlowTinyModels, AnswerTheSameForEveryArchitectureAndEveryDtype) {
  testing::Totals totals;
  const auto architectures = testing::tiny_architectures();
  const auto dtypes = testing::tiny_dtypes();
  for (size_t a = 0; a < architectures.size(); ++a) {
    for (size_t d = 0; d < dtypes.size(); ++d) {
      if ((a + d) % 3 != 0) continue;
      const size_t pair = a * dtypes.size() + d, kv = pair / 3 % std::size(kKvDtypes);
      hold_to_schedules(architectures[a], dtypes[d], kKvDtypes[kv], 10000 + 24 * pair + 8 * kv, testing::n_cases(8), 6,
                        totals);
      if (HasFailure()) return;
    }
  }
  printf("%lld schedules, %lld steps, %lld preemptions, %lld tokens from the cache\n",
         static_cast<long long>(totals.n_schedules), static_cast<long long>(totals.n_steps),
         static_cast<long long>(totals.n_preemptions), static_cast<long long>(totals.cached_tokens));
}

// Weight dtypes that are read and not written, with experts and without in turn.
TEST(SlowTinyModels, AnswerTheSameForEveryLowBitDtype) {
  testing::Totals totals;
  const auto dtypes = testing::low_bit_dtypes();
  for (size_t i = 0; i < dtypes.size(); ++i) {
    hold_to_schedules(i % 2 == 0 ? "llama" : "qwen3moe", dtypes[i], kKvDtypes[i % 3], 50000 + 24 * i,
                      testing::n_cases(8), 6, totals);
  }
  EXPECT_GE(totals.n_schedules, 24);
}

}  // namespace
}  // namespace ibid
