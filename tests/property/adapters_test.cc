// Requests of several adapters, and of none, under schedules: each answers as alone (rows B6, X5).
#include <gtest/gtest.h>

#include "model/testing/random_adapter.h"
#include "property/budget.h"
#include "property/tiny_models.h"

namespace ibid {
namespace {

using testing::alone;
using testing::Digests;
using testing::LoadedModel;
using testing::Schedule;
using testing::ScheduleRun;

class AdaptersOfRequests : public ::testing::TestWithParam<std::string_view> {
 protected:
  // A model that runs by an instruction set with some threads, and its adapters.
  struct Loaded {
    std::unique_ptr<LoadedModel> m;
    std::vector<std::shared_ptr<const PlacedAdapter>> adapters;
  };
  Loaded load(Isa isa, int n_threads, DType dtype) {
    EXPECT_TRUE(select_isa(isa).ok());
    Loaded out;
    out.m = std::make_unique<LoadedModel>(testing::tiny_model_file({.architecture = GetParam(),
                                                                    .dtype = dtype,
                                                                    .vocab_size = testing::kVocabSize,
                                                                    .context_len = testing::kContext}),
                                          ModelOptions{.step_tokens = testing::kMaxTokens,
                                                       .max_rows = testing::kMaxTokens,
                                                       .max_sequences = testing::kMaxSequences,
                                                       .max_adapters = 3,
                                                       .max_adapter_rank = 8},
                                          n_threads);
    for (uint64_t seed = 1; seed <= 2; ++seed)
      out.adapters.push_back(out.m->model->adapters()->place(testing::random_adapter(*out.m, seed)).value());
    return out;
  }
  // Requests with the same prompts, of each adapter and of none.
  static std::vector<Request> requests(const Loaded& of) {
    std::vector<Request> out;
    for (const Request& r : testing::tiny_requests(testing::kVocabSize)) {
      if (r.prompt.size() > 100) continue;
      for (size_t i = 0; i < 3; ++i) {
        Request& one = out.emplace_back(r);
        one.id = RequestId{out.size()};
        if (i < 2) one.adapter = of.adapters[i];
      }
    }
    return out;
  }
};

TEST_P(AdaptersOfRequests, AnswerTheSameUnderThirtyTwoSchedules) {
  const std::vector<Isa> isas = supported_isas();
  testing::Totals totals;
  Digests expected;
  for (int n_threads = 1; n_threads <= 2; ++n_threads) {
    for (size_t i = 0; i < isas.size(); ++i) {
      const DType dtype = DType::kQ8_0;
      const Loaded loaded = load(isas[isas.size() - 1 - i], n_threads, dtype);
      Model& model = *loaded.m->model;
      const std::vector<Request> all = requests(loaded);
      if (expected.empty()) {
        expected = alone(model, *loaded.m->stream, nullptr, DType::kF16, testing::kMaxTokens, all);
        for (const std::string& digest : expected) note_bits(digest);
        EXPECT_GE(std::set<std::string>(expected.begin(), expected.end()).size(), expected.size() - 1);
      }
      const uint64_t n_schedules = i == 0 ? 14 : 2;
      for (uint64_t k = 0; k < n_schedules; ++k) {
        const uint64_t seed = 70000 + 100 * static_cast<uint64_t>(n_threads) + 16 * i + k;
        Schedule schedule = testing::random_schedule(seed, testing::kMaxTokens, testing::kMaxSequences);
        if (k == 0) schedule.preempt_at = 4;
        schedule.is_recorded = k % 5 == 0;
        ScheduleRun run(model, *loaded.m->stream, nullptr, DType::kF16, schedule, all);
        EXPECT_EQ(run.run(&totals), expected) << spelled(schedule);
        EXPECT_EQ(run.differences(), std::vector<std::string>()) << spelled(schedule);
        totals.n_replays += run.n_replays();
        if (HasFailure()) return;
      }
    }
  }
  EXPECT_GE(totals.n_schedules, 28);
  EXPECT_GT(totals.n_preemptions, 0);
  EXPECT_GT(totals.cached_tokens, 0);
  EXPECT_GT(totals.n_accepted, 20);
  EXPECT_GT(totals.n_replays, 4) << "of records";
}

INSTANTIATE_TEST_SUITE_P(Kinds, AdaptersOfRequests, ::testing::Values("llama", "qwen3moe", "qwen35"),
                         [](const auto& param_info) { return std::string(param_info.param); });

}  // namespace
}  // namespace ibid
