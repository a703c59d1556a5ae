// Every kind of proposer is measured: its drafts after each token, their acceptance, their cost.
#include "cli/measure/draft_measures.h"

#include <gtest/gtest.h>

#include "cli/options/options.h"
#include "host/loading.h"
#include "tiny_files.h"
#include "tiny_heads.h"

namespace ibid::cli {
namespace {

std::string tiny_heads_path(const TempFolder& folder, const Model& target) {
  return testing::written_draft_file(folder, "hydra",
                                     *testing::tiny_heads_file({.width = target.config().width, .vocab_size = 260}));
}

class DraftMeasuring : public ::testing::Test {
 protected:
  DraftMeasures measure(const std::string& model, SpecArgs spec, float temperature = 0) {
    spec.finds_own = false, spec.k = 4;
    const host::StepLimits limits = {.spec = spec, .draft_chains = true};
    const host::Loaded loaded = host::load({.model = model, .threads = 1}, limits).value();
    DraftRun run{.n_tokens = 40, .temperature = temperature};
    for (int32_t i = 0; i < 3; ++i) {
      std::vector<TokenId> prompt;
      for (int32_t j = 0; j < 30; ++j) prompt.push_back(TokenId{(40 * i + j * j) % 200 + 20});
      run.prompts.push_back(std::move(prompt));
    }
    return measure_drafts(loaded, limits, "it", run).value();
  }
  void expect_measured(const DraftMeasures& measured) {
    ASSERT_EQ(measured.names, (std::vector<std::string>{"ngram", "it"}));
    EXPECT_GT(measured.n_tokens(), 60);
    EXPECT_GT(measured.costs[1], 0);
    EXPECT_GT(measured.costs[1], measured.costs[0]);
    ASSERT_EQ(measured.rows.size(), 5u);
    EXPECT_EQ(measured.rows[0], 1);
    EXPECT_TRUE(std::ranges::is_sorted(measured.rows));
    const std::vector<double> right = right_by_place(measured, 1);
    ASSERT_FALSE(right.empty());
    for (const double r : right) EXPECT_TRUE(r >= 0 && r <= 1);
    // After the text's last token nothing may be drafted, after all others it was.
    for (const DraftedText& text : measured.texts) {
      ASSERT_EQ(text.drafts.size(), 2u);
      ASSERT_GE(text.drafts[1].size() + 3, text.answer.size());
    }
  }
  TempFolder folder_;
  std::string model_ = testing::tiny_file(folder_, "target.gguf", 260, 1);
};

TEST_F(DraftMeasuring, AModelThatIsTheTargetIsAlwaysRightAndCostsAsMuch) {
  for (const float temperature : {0.0F, 0.8F}) {
    DraftMeasures measured = measure(model_, {.draft_model = model_}, temperature);
    expect_measured(measured);
    EXPECT_EQ(right_by_place(measured, 1), (std::vector<double>{1, 1, 1, 1})) << temperature;
    measured.rows = {1, 1, 1, 1, 1};                                // so that no clock decides what pays
    EXPECT_GT(gain_of(measured, 1, 4).tokens, 4.3) << temperature;  // answers end within a step
  }
}

TEST_F(DraftMeasuring, KnowsEachKindOfProposer) {
  expect_measured(measure(model_, {.draft_model = testing::tiny_file(folder_, "draft.gguf", 260, 2)}));
  expect_measured(measure(model_, {.skip = "1"}));
  const host::Loaded target = host::load({.model = model_, .threads = 1}, {}).value();
  expect_measured(measure(model_, {.eagle = testing::tiny_eagle_path(folder_, *target.model)}));
  expect_measured(measure(model_, {.heads = tiny_heads_path(folder_, *target.model)}));
  expect_measured(measure(testing::tiny_with_mtp(folder_), {.mtp = true}));
  SpecArgs window;
  window.window = WindowArgs{.n_sink = 4, .n_window = 16};
  expect_measured(measure(model_, window));
  // A draft model under a view costs what both do.
  window.draft_model = testing::tiny_file(folder_, "draft.gguf", 260, 2);
  expect_measured(measure(model_, window));
}

TEST_F(DraftMeasuring, TheLookUpAloneIsMeasuredToo) {
  const DraftMeasures measured = measure(model_, {});
  EXPECT_EQ(measured.names, std::vector<std::string>{"ngram"});
  EXPECT_LT(measured.costs[0], 0.5);
}

std::string planned(const PlanOptions& options) {
  ::testing::internal::CaptureStdout();
  ::testing::internal::CaptureStderr();
  const int code = plan(options);
  const std::string errors = ::testing::internal::GetCapturedStderr();
  return ::testing::internal::GetCapturedStdout() + (code == kOk ? "" : errors);
}

TEST_F(DraftMeasuring, PlanShowsTheCostOfEachAndWhatPays) {
  PlanOptions options;
  options.serve.model.model = model_;
  options.serve.model.threads = 1;
  options.serve.max_sequences = 2;
  const std::string unasked = planned(options);
  EXPECT_NE(unasked.find("drafts that cost nothing"), std::string::npos) << unasked;
  EXPECT_EQ(unasked.find("drafts along"), std::string::npos) << unasked;
  const host::Loaded target = host::load({.model = model_, .threads = 1}, {}).value();
  options.serve.spec.name = "eagle:it";
  options.serve.spec.eagle = testing::tiny_eagle_path(folder_, *target.model);
  options.text = folder_.write("text", std::string(300, 'a') + " and so on, and so on, and on.");
  const std::string said = planned(options);
  EXPECT_EQ(said.find("cost nothing"), std::string::npos) << said;
  EXPECT_NE(said.find("ngram: a draft costs 0.0"), std::string::npos) << said;
  EXPECT_NE(said.find("eagle:it: a draft costs "), std::string::npos) << said;
  EXPECT_EQ(said.find("eagle:it: a draft costs 0.000"), std::string::npos) << said;
  EXPECT_TRUE(said.find("best: --spec ") != std::string::npos || said.find("none pays here") != std::string::npos)
      << said;
  options.text = folder_.path("none");
  EXPECT_NE(planned(options).find("cannot be read"), std::string::npos);
}

}  // namespace
}  // namespace ibid::cli
