#include "cli/measure/bench_spec.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/json.h"
#include "cli/options/options.h"
#include "cli/terminal/exit_code.h"
#include "host/host.h"
#include "tiny_files.h"

namespace ibid::cli {
namespace {

SpecBenchResult counted() {
  SpecBenchResult out;
  out.rows.push_back({.kind = "code",
                      .n_answers = 2,
                      .n_tokens = 200,
                      .n_steps = 100,
                      .n_drafted = 160,
                      .n_accepted = 100,
                      .seconds = 1,
                      .plain_seconds = 1.5});
  out.verified_at = {80, 50, 30}, out.accepted_at = {60, 30, 10};
  out.step_seconds = {{1, 0.010}, {2, 0.011}, {4, 0.015}};
  return out;
}

TEST(SpecBench, PrintsTheCounts) {
  const std::string table = spec_bench_text(counted(), "md");
  EXPECT_NE(table.find("| code | 2 | 2.00 | 1.60 | 0.62 | 200.00 | 133.33 | 1.50 |"), std::string::npos) << table;
  EXPECT_NE(table.find("accepted by place: 0.75 of 80, 0.60 of 50, 0.33 of 30\n"), std::string::npos) << table;
  EXPECT_NE(table.find("one row takes 10.00 ms; of 2: 1.10 4: 1.50 of that"), std::string::npos) << table;
  const std::string csv = spec_bench_text(counted(), "csv");
  EXPECT_NE(csv.find("code,2,2.000,1.600,0.625,200.00,133.33,1.500\n"), std::string::npos) << csv;
  const Json json = parse_json(spec_bench_text(counted(), "json")).value();
  EXPECT_EQ(*(*json.find("places")->array())[1].find("accepted")->integer(), 30);
  EXPECT_EQ((*json.find("rows")->array()).size(), 3u);
}

class SpecBenchRuns : public ::testing::Test {
 protected:
  std::string said(BenchOptions options) {
    options.model.model = testing::tiny_file(folder_, "model.gguf", 260, 1);
    options.model.threads = 1;
    ::testing::internal::CaptureStdout();
    ::testing::internal::CaptureStderr();
    const int code = bench(options);
    const std::string errors = ::testing::internal::GetCapturedStderr();
    return ::testing::internal::GetCapturedStdout() + (code == kOk ? "" : errors);
  }
  TempFolder folder_;
};

// A tiny model at temperature 0 repeats itself, which the look-up finds.
TEST_F(SpecBenchRuns, AnswersPromptsOfAFileWithDraftsAndWithout) {
  BenchOptions options{.n_gen = {60}, .repeats = 2, .output = "json"};
  options.spec.by_lookup = true;
  options.spec.name = "ngram";
  options.prompts = folder_.write("prompts", "== chat\nab ab\n== code\nxyz\n== chat\nhello\n");
  const std::string text = said(options);
  const auto json = parse_json(text);
  ASSERT_TRUE(json.ok()) << text;
  const Json::Array& texts = *json->find("texts")->array();
  ASSERT_EQ(texts.size(), 3u) << text;
  EXPECT_EQ(*texts[0].find("text")->string(), "chat");
  const auto n = [&](size_t i, const char* field) { return *texts[i].find(field)->integer(); };
  EXPECT_EQ(n(0, "answers"), 2);
  EXPECT_EQ(n(2, "answers"), 3);
  EXPECT_EQ(n(2, "tokens"), n(0, "tokens") + n(1, "tokens"));
  EXPECT_LE(n(2, "tokens"), n(2, "steps") + n(2, "accepted"));
  EXPECT_GE(n(2, "tokens") + 3, n(2, "steps") + n(2, "accepted"));
  int64_t drafted = 0, accepted = 0;
  for (const Json& place : *json->find("places")->array())
    drafted += *place.find("drafted")->integer(), accepted += *place.find("accepted")->integer();
  EXPECT_EQ(drafted, n(2, "drafted"));
  EXPECT_EQ(accepted, n(2, "accepted"));
  EXPECT_GE(json->find("rows")->array()->size(), 1u);
}

// Two tokens, which are verified whatever that costs: the last one of the prompt, and one that never occurs.
class Repeating final : public Proposer {
 public:
  void propose(const ProposalInput& input, Drafts& drafts) override {
    drafts.add(input.answer.back(), -1);
    if (input.max_drafts > 1) drafts.add(TokenId{3}, 0);
  }
};

TEST_F(SpecBenchRuns, CountsByPlaceWhatWasVerifiedAndAccepted) {
  const host::StepLimits limits{.spec = {.finds_own = false, .k = 2}};
  const host::Loaded loaded =
      host::load({.model = testing::tiny_file(folder_, "model.gguf", 260, 1), .threads = 1}, limits).value();
  const auto engine = host::start_engine(loaded, loaded.engine_options(limits)).value();
  engine->speculate(std::make_unique<Repeating>(), 2);
  int n_answered = 0;
  const auto result = bench_spec(*engine, {{"chat", {TokenId{70}, TokenId{71}}}, {"code", {TokenId{80}}}},
                                 {.n_tokens = 40, .repeats = 3}, [&] { ++n_answered; })
                          .value();
  EXPECT_EQ(n_answered, 2 * 2 * 3);
  ASSERT_EQ(result.rows.size(), 3u);
  const SpecBenchRow& all = result.rows.back();
  EXPECT_EQ(all.n_drafted, result.verified_at[0] + result.verified_at[1]);
  EXPECT_EQ(all.n_accepted, result.accepted_at[0] + result.accepted_at[1]);
  EXPECT_GT(result.verified_at[0], 20);
  EXPECT_GT(result.verified_at[1], 20);
  EXPECT_EQ(result.verified_at[2], 0);
  EXPECT_EQ(result.accepted_at[1], 0);
  EXPECT_EQ(all.n_tokens, all.n_steps + all.n_accepted);
  EXPECT_GT(result.step_seconds.at(1), 0);  // of the answers without
  EXPECT_GT(result.step_seconds.at(3), 0);
}

TEST_F(SpecBenchRuns, IncompatibleOptionsAreRefused) {
  BenchOptions options{.n_gen = {8}, .repeats = 1};
  options.prompts = folder_.write("prompts", "# nothing\n");
  EXPECT_NE(said(options).find("with --spec NAME alone"), std::string::npos);
  options.spec.by_lookup = true;
  EXPECT_NE(said(options).find("There is no prompt in"), std::string::npos);
  options.prompts = folder_.path("none");
  EXPECT_NE(said(options).find("cannot be read"), std::string::npos);
  options.prompts = "";
  options.streams = {2};
  EXPECT_NE(said(options).find("leave --streams"), std::string::npos);
}

}  // namespace
}  // namespace ibid::cli
