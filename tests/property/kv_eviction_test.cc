// Requests that go on with the keys and values of fewer tokens, and others beside them, under schedules: each answers
// as alone. What they hold is what their policies keep.
#include <gtest/gtest.h>

#include <set>

#include "pinned_bits.h"
#include "property/budget.h"
#include "property/tiny_models.h"

namespace ibid {
namespace {

using testing::alone;
using testing::Digests;
using testing::kMaxSequences;
using testing::kMaxTokens;
using testing::kVocabSize;
using testing::LoadedModel;
using testing::Schedule;
using testing::ScheduleRun;
using testing::TinyModels;

constexpr int32_t kWindow = 6;

// Beginnings that several share, prompts shorter and longer than what is kept, several choices, and some that keep all.
std::vector<Request> requests(KvMethod method) {
  struct Case {
    size_t n;  // of the prompt
    int32_t keep;
    float share;
    int32_t max_tokens;
    int32_t n_choices;
  };
  const Case cases[] = {{150, 24, 0, 12, 1}, {150, 0, 0.25F, 9, 2}, {100, 40, 0, 10, 1}, {20, 24, 0, 12, 1},
                        {150, -1, 0, 8, 1},  {47, 8, 0, 20, 1},     {200, 32, 0, 6, 3},  {61, 16, 0, 12, 1},
                        {151, 24, 0, 10, 1}, {90, -1, 0, 10, 2},    {7, 6, 0, 9, 1},     {30, 24, 0, 250, 1}};
  const auto text = testing::some_tokens(200, kVocabSize, 3);
  std::vector<Request> out;
  for (const Case& c : cases) {
    Request& r = out.emplace_back();
    r.id = RequestId{out.size()};
    r.prompt.assign(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(c.n));
    if (out.size() % 4 == 0) r.prompt[c.n / 2] = TokenId{static_cast<int32_t>(out.size())};
    r.max_tokens = c.max_tokens;
    r.n = c.n_choices;
    r.sampling.seed = 100 * out.size();
    r.sampling.logprobs = 2;
    r.sampling.ignore_eos = true;
    r.sampling.temperature = out.size() % 3 == 0 ? 0.0f : 1.0f;
    if (c.keep >= 0)
      r.kv_eviction = {.method = method, .keep = c.keep, .keep_share = c.share, .window = kWindow, .sinks = 3};
  }
  if (method == KvMethod::kStreaming) out.back().max_tokens = 280;  // past the point that follows its prompt's end
  return out;
}

class EvictionUnderSchedules : public ::testing::TestWithParam<std::tuple<KvMethod, KvTypes>> {};

TEST_P(EvictionUnderSchedules, AnswersAsAlone) {
  const auto [method, kv_dtype] = GetParam();
  const std::vector<Request> all = requests(method);
  TinyModels models("llama", DType::kQ8_0);
  LoadedModel& best = models.load(TinyModels::best(), 1);
  const Digests expected = alone(*best.model, *best.stream, nullptr, kv_dtype, kMaxTokens, all);
  for (const std::string& digest : expected) note_bits(digest);
  const std::vector<Isa> isas = supported_isas();
  testing::Totals totals;
  constexpr uint64_t kFirst = 91000, kSchedules = 32;
  for (uint64_t seed = kFirst; seed < kFirst + kSchedules; ++seed) {
    Schedule schedule = testing::random_schedule(seed, kMaxTokens, kMaxSequences);
    if (seed == kFirst) schedule.preempt_at = 4;
    schedule.step_tokens = std::max(schedule.step_tokens, schedule.max_sequences + kWindow);  // beside decodes
    schedule.is_recorded = seed % 5 == 0;
    const Isa isa = seed % 8 == 0 ? isas.front() : isas[seed % isas.size()];
    LoadedModel& m = models.load(isa, 1 + static_cast<int>(seed / 2 % 2));
    ScheduleRun run(*m.model, *m.stream, nullptr, kv_dtype, schedule, all);
    EXPECT_EQ(run.run(&totals), expected) << spelled(schedule) << ", " << isa_name(isa);
    EXPECT_EQ(run.differences(), std::vector<std::string>()) << spelled(schedule);
    totals.n_replays += run.n_replays();
    if (HasFailure()) return;
  }
  EXPECT_GT(totals.n_preemptions, 0);
  EXPECT_GT(totals.cached_tokens, 0);
  EXPECT_GT(totals.n_accepted, 0);
  EXPECT_GT(totals.n_replays, 4) << "of records";
}

INSTANTIATE_TEST_SUITE_P(Policies, EvictionUnderSchedules,
                         ::testing::Combine(::testing::Values(KvMethod::kSnapKv, KvMethod::kHeavy,
                                                              KvMethod::kStreaming),
                                            ::testing::Values(KvTypes(KvType::kF16), KvTypes(KvType::kI8))),
                         [](const auto& of) {
                           return std::string(name_of(std::get<0>(of.param))) + "_" +
                                  std::string(std::get<1>(of.param) == KvTypes(KvType::kF16) ? "f16" : "i8");
                         });

}  // namespace
}  // namespace ibid
