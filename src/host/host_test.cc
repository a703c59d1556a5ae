// An engine from options to answers: engines beside each other, the order of what is put together, errors.
#include "host/host.h"

#include <gtest/gtest.h>

#include <cctype>
#include <fstream>
#include <thread>

#include "engine/record/replay.h"
#include "model/testing/tiny_model.h"
#include "temp_folder.h"

namespace ibid::host {
namespace {

struct Said {
  std::vector<TokenId> tokens;
  std::vector<float> logprobs;
  bool operator==(const Said&) const = default;
};

class Host : public ::testing::Test {
 protected:
  HostOptions options(const std::string& model) const {
    return {.model = {.model = model, .threads = 1},
            .limits = {.step_tokens = 64, .max_sequences = 2, .spec = {.finds_own = false, .k = 4}},
            .measures = false};
  }
  static Request request() {
    Request r;
    r.id = RequestId{1};
    for (int32_t i = 0; i < 20; ++i) r.prompt.push_back(TokenId{40 + i % 5});
    r.max_tokens = 40;
    r.sampling.temperature = 0.8F;
    r.sampling.seed = 7;
    r.sampling.ignore_eos = true;
    return r;
  }
  static void add(const std::vector<Output>& outputs, Said& said) {
    for (const Output& o : outputs) {
      for (const TokenRecord& t : o.tokens) {
        said.tokens.push_back(t.chosen.token);
        said.logprobs.push_back(t.chosen.raw);
      }
    }
  }
  static Said answer(Engine& engine) {
    Said out;
    EXPECT_TRUE(engine.submit(request()).ok());
    std::vector<Output> outputs;
    while (engine.step(outputs)) {
    }
    add(outputs, out);
    return out;
  }
  TempFolder folder_;
  std::string model_ = folder_.write(
      "model.gguf", testing::tiny_gguf({.seed = 1, .vocab_size = 260, .context_len = 128, .tokenizer = true}));
};

TEST_F(Host, EnginesBesideEachOtherAnswerAsOneAlone) {
  const Said alone = answer(*open(options(model_)).value().engine);
  ASSERT_EQ(alone.tokens.size(), 40u);
  Hosted first = open(options(model_)).value();
  HostOptions other = options(model_);
  other.model.threads = 2;
  other.limits.spec.by_lookup = false;
  Hosted second = open(other).value();
  // Step by step in turn.
  Said one, two;
  ASSERT_TRUE(first.engine->submit(request()).ok());
  ASSERT_TRUE(second.engine->submit(request()).ok());
  for (bool is_over = false; !is_over;) {
    std::vector<Output> of_first, of_second;
    is_over = !first.engine->step(of_first);
    is_over = !second.engine->step(of_second) && is_over;
    add(of_first, one);
    add(of_second, two);
  }
  EXPECT_EQ(one, alone);
  EXPECT_EQ(two, alone);
  // And at once, each on a thread of its own.
  std::thread thread([&] { one = answer(*first.engine); });
  two = answer(*second.engine);
  thread.join();
  EXPECT_EQ(one, alone);
  EXPECT_EQ(two, alone);
}

TEST_F(Host, AHostedMayBeMovedWhileItsEngineRuns) {
  Hosted first = open(options(model_)).value();
  const Said said = answer(*first.engine);
  const Hosted moved = std::move(first);
  EXPECT_EQ(answer(*moved.engine), said);
}

TEST_F(Host, StepCostIsMeasuredBeforeTheRecordBegins) {
  HostOptions recorded = options(model_);
  recorded.record.file = folder_.path("record");
  recorded.name = "tiny";
  recorded.measures = true;
  Said said;
  {
    const Hosted hosted = open(recorded).value();
    EXPECT_FALSE(hosted.engine->options().measured_steps.empty());
    EXPECT_EQ(hosted.engine->options().model_digest.size(), 32u) << "a record has it without being asked";
    said = answer(*hosted.engine);
    ASSERT_EQ(said.tokens.size(), 40u);
  }
  const auto replay = Replay::open(recorded.record.file).value();
  EXPECT_EQ(replay->head().model, "tiny");
  EXPECT_FALSE(replay->head().options.measured_steps.empty());
  // The head is that of the very engine: with its options every step is the same again.
  const Loaded loaded = load(recorded.model, recorded.limits).value();
  const auto engine = start_engine(loaded, replay->options(), {.clock = replay->clock()}).value();
  const auto result = replay->run(*engine, loaded.tokenizer);
  ASSERT_TRUE(result) << result.error().message;
  EXPECT_EQ(result->difference, "");
  EXPECT_GT(result->n_tokens, 0);
}

TEST_F(Host, ARecordThatIsThereIsRefusedBeforeAModelIsRead) {
  HostOptions wrong = options(folder_.path("none.gguf"));
  wrong.record.file = folder_.write("record", "kept");
  const auto refused = open(wrong);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("record"), std::string::npos) << refused.error().message;
  EXPECT_EQ(refused.error().message.find("none.gguf"), std::string::npos) << refused.error().message;
  std::ifstream file(wrong.record.file);
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(file), {}), "kept");
}

TEST_F(Host, ErrorsAreSentences) {
  const auto error_of = [](const HostOptions& wrong) {
    const auto hosted = open(wrong);
    EXPECT_FALSE(hosted.ok());
    const Error error = hosted.ok() ? Error{} : hosted.error();
    EXPECT_NE(error.message.find(' '), std::string::npos) << error.message;
    return error;
  };
  EXPECT_EQ(error_of(options(folder_.path("none.gguf"))).kind, ErrorKind::kNotFound);
  const Error bad = error_of(options(folder_.write("bad.gguf", "GGUF and no more")));
  EXPECT_NE(bad.message.find("GGUF"), std::string::npos) << bad.message;
  HostOptions small = options(model_);
  small.model.memory_bytes = 1 << 20;
  const Error exhausted = error_of(small);
  EXPECT_EQ(exhausted.kind, ErrorKind::kExhausted);
  EXPECT_NE(exhausted.message.find("does not fit"), std::string::npos) << exhausted.message;
  // Without figures: that of the program is what the process holds by now.
  const auto words = [](std::string text) {
    std::erase_if(text, [](unsigned char c) { return std::isdigit(c) != 0; });
    return text;
  };
  const auto sized = size(small);
  ASSERT_FALSE(sized.ok());
  EXPECT_EQ(sized.error().kind, exhausted.kind);
  EXPECT_EQ(words(sized.error().message), words(exhausted.message));
  HostOptions many = options(model_);
  many.limits.spec.draft_model = folder_.write(
      "other.gguf", testing::tiny_gguf({.seed = 1, .vocab_size = 264, .context_len = 128, .tokenizer = true}));
  EXPECT_EQ(error_of(many).where, "--spec");
  // What was refused leaves nothing that stands in the way.
  EXPECT_TRUE(open(options(model_)).ok());
}

TEST_F(Host, LoadingReportsHowFarItIsUntilItIsOver) {
  std::vector<LoadProgress> reports;
  const auto note = [&](const LoadProgress& report) { reports.push_back(report); };
  ASSERT_TRUE(open(options(model_), note).ok());
  ASSERT_GE(reports.size(), 2u);
  for (size_t i = 0; i < reports.size(); ++i) {
    EXPECT_EQ(reports[i].file, "") << "nothing is fetched";
    EXPECT_EQ(reports[i].is_over, i + 1 == reports.size());
    EXPECT_LE(reports[i].n_done, reports[i].is_over ? 0 : reports[i].n_total);
  }
}

}  // namespace
}  // namespace ibid::host
