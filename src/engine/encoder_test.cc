// An encoder's vectors and scores: the same bytes alone and in company, for any step and any number of threads; each
// sequence in one step; no blocks; no answers.
#include <gtest/gtest.h>

#include <map>

#include "engine/engine.h"
#include "engine/memory_plan.h"
#include "finished_outputs.h"
#include "kernels/isa.h"
#include "model/testing/loaded_model.h"
#include "model/testing/parts.h"

namespace ibid {
namespace {

constexpr int32_t kContext = 96;
constexpr Pooling kPoolings[] = {Pooling::kMean, Pooling::kLast, Pooling::kFirst, Pooling::kRank, Pooling::kEach};
constexpr size_t kNPoolings = std::size(kPoolings);

struct Fixture {
  explicit Fixture(std::string_view architecture = "bert_rank", int32_t step_tokens = 128, int n_threads = 1,
                   DType dtype = DType::kF32)
      : Fixture(testing::tiny_model_file({.architecture = architecture, .dtype = dtype, .context_len = kContext}),
                step_tokens, n_threads) {}
  explicit Fixture(std::shared_ptr<const ModelFile> file, int32_t step_tokens = 128, int n_threads = 1)
      : model(std::move(file), {.step_tokens = 256, .max_rows = 16, .max_sequences = 16}, n_threads) {
    core =
        Engine::create(*model.model, nullptr, *model.stream, {.step_tokens = step_tokens, .max_sequences = 16}, clock)
            .value();
  }
  // Sequence `which` of some whose lengths differ, a pair where it is ranked.
  Request text(uint64_t which, Pooling pooling) {
    Request r;
    r.id = RequestId{next_id++};
    r.prompt = testing::some_tokens(2 + static_cast<int64_t>(which * 37 % (kContext - 1)), 96, which);
    r.max_tokens = 0;
    r.pooling = pooling;
    if (pooling == Pooling::kRank) r.second_text = static_cast<int32_t>(r.prompt.size() / 2);
    return r;
  }
  std::map<RequestId, Output> drain() { return testing::finished_outputs(*core); }
  std::vector<float> alone(Request r) {
    const RequestId id = r.id;
    EXPECT_TRUE(core->submit(std::move(r)).ok());
    Output out = std::move(drain().at(id));
    EXPECT_EQ(out.reason, FinishReason::kStop);
    return std::move(out.ending->embedding);
  }
  std::string refusal(Request r) {
    const Status status = core->submit(std::move(r));
    return status ? std::string() : status.error().message;
  }

  ManualClock clock;
  testing::LoadedModel model;
  std::unique_ptr<Engine> core;
  uint64_t next_id = 1;
};

TEST(Encoder, GivesTheSameBytesAloneAndInCompany) {
  Fixture lonely;
  for (const int32_t step_tokens : {kContext, 131, 256}) {
    for (const int n_threads : {1, 3}) {
      Fixture f("bert_rank", step_tokens, n_threads);
      std::map<RequestId, std::pair<uint64_t, Pooling>> texts;
      for (uint64_t i = 0; i < 40; ++i) {
        Request text = f.text(i, kPoolings[i % kNPoolings]);
        texts[text.id] = {i, text.pooling};
        ASSERT_TRUE(f.core->submit(std::move(text)).ok());
      }
      for (const auto& [id, out] : f.drain()) {
        const auto [which, pooling] = texts.at(id);
        EXPECT_EQ(out.ending->embedding, lonely.alone(lonely.text(which, pooling)))
            << "text " << which << " in steps of " << step_tokens << " on " << n_threads;
        EXPECT_EQ(out.usage.cached_tokens, 0);
        const int64_t n_vectors = pooling == Pooling::kEach ? std::ssize(f.text(which, pooling).prompt) : 1;
        EXPECT_EQ(std::ssize(out.ending->embedding),
                  pooling == Pooling::kRank ? 1 : n_vectors * f.model.model->config().width);
        texts.erase(id);
      }
      EXPECT_TRUE(texts.empty());
      EXPECT_LT(f.core->stats().n_steps, 40) << "texts share steps";
      EXPECT_EQ(f.core->stats().blocks_total, 0);
      f.core->self_check();
    }
  }
}

TEST(Encoder, RunsWithWeightsOfAnyTypeAndOnEveryInstructionSet) {
  for (const DType dtype : {DType::kF16, DType::kBF16, DType::kQ8_0, DType::kQ4_K}) {
    std::vector<float> first;
    for (const Isa isa : supported_isas()) {
      ASSERT_TRUE(select_isa(isa).ok());
      Fixture f("bert_rank", 256, 2, dtype);
      const Request text = f.text(11, Pooling::kMean);
      for (uint64_t i = 0; i < 3; ++i) ASSERT_TRUE(f.core->submit(f.text(i, kPoolings[i])).ok());
      const RequestId id = text.id;
      ASSERT_TRUE(f.core->submit(text).ok());
      const std::vector<float> vector = f.drain().at(id).ending->embedding;
      if (first.empty()) first = vector;
      EXPECT_EQ(vector, first) << isa_name(isa);
    }
  }
}

TEST(Encoder, EachTokenSeesAllOfItsSequence) {
  Fixture f;
  Request one = f.text(7, Pooling::kFirst), other = f.text(7, Pooling::kFirst);
  ASSERT_GT(one.prompt.size(), 20u);
  other.prompt.back() = TokenId{raw(other.prompt.back()) ^ 1};
  EXPECT_NE(f.alone(std::move(one)), f.alone(std::move(other)));
}

TEST(Encoder, DistinguishesAPairFromOneSequence) {
  Fixture f;
  for (const Pooling pooling : {Pooling::kRank, Pooling::kMean}) {
    Request whole = f.text(9, pooling), pair = f.text(9, pooling);
    whole.second_text = 0;
    pair.second_text = 5;
    EXPECT_NE(f.alone(std::move(whole)), f.alone(std::move(pair)));
  }
}

TEST(Encoder, OfOneTokenTypeReadsBothSequencesOfAPairWithIt) {
  const testing::TinyModelOptions options{.architecture = "bert_rank", .context_len = kContext};
  ModelFile::Parts parts = testing::tiny_parts(options);
  const auto types = std::ranges::find(parts.tensors, "token_types.weight", &TensorInfo::name);
  ASSERT_NE(types, parts.tensors.end());
  types->view.dim[0] = 1;
  Fixture f(std::make_shared<const ModelFile>(std::move(parts)));
  Request whole = f.text(9, Pooling::kRank), pair = f.text(9, Pooling::kRank);
  whole.second_text = 0;
  EXPECT_EQ(f.alone(std::move(whole)), f.alone(std::move(pair)));
}

TEST(Encoder, ALongSequenceIsNotKeptOutByShortOnes) {
  Fixture f;
  std::vector<Output> out;
  Request longest = f.text(0, Pooling::kMean);
  longest.prompt = testing::some_tokens(kContext, 96);
  const RequestId wanted = longest.id;
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(f.core->submit(f.text(1, Pooling::kMean)).ok());
  ASSERT_TRUE(f.core->submit(std::move(longest)).ok());
  const auto is_done = [&] {
    return std::ranges::any_of(out, [&](const Output& o) { return o.request == wanted && o.finished; });
  };
  int n_steps = 0;
  for (; !is_done() && n_steps < 20; ++n_steps) {
    for (int i = 0; i < 4; ++i) ASSERT_TRUE(f.core->submit(f.text(1, Pooling::kMean)).ok());
    f.core->step(out);
  }
  EXPECT_LE(n_steps, 3);
}

TEST(Encoder, RefusesWhatItCannotDoByName) {
  Fixture f, plain("bert");
  Request answer = f.text(1, Pooling::kNone);
  answer.max_tokens = 4;
  EXPECT_NE(f.refusal(answer).find("no answers"), std::string::npos);
  EXPECT_NE(plain.refusal(plain.text(1, Pooling::kRank)).find("no head"), std::string::npos);
  Request longer = f.text(1, Pooling::kMean);
  longer.prompt = testing::some_tokens(kContext + 1, 96);
  EXPECT_NE(f.refusal(longer).find("97 tokens and the context is 96"), std::string::npos);
  for (const int32_t place : {-1, 1 << 20}) {
    Request pair = f.text(1, Pooling::kRank);
    pair.second_text = place;
    EXPECT_NE(f.refusal(pair).find("second_text"), std::string::npos);
  }
  testing::LoadedModel causal{testing::TinyModelOptions{}};
  auto engine =
      Engine::create(*causal.model, nullptr, *causal.stream, {.step_tokens = 64, .max_sequences = 4}, f.clock);
  ASSERT_TRUE(engine.ok()) << engine.error().message;
  const Status ranked = (*engine)->submit(f.text(1, Pooling::kRank));
  EXPECT_NE(ranked.error().message.find("no head"), std::string::npos);
  const auto short_steps = Engine::create(*f.model.model, nullptr, *f.model.stream,
                                          {.step_tokens = kContext - 1, .max_sequences = 4}, f.clock);
  EXPECT_EQ(short_steps.error().where, "step_tokens");
}

TEST(Encoder, NeedsMemoryForNoBlocks) {
  const Fixture f;
  const EngineOptions options{.step_tokens = 128, .max_sequences = 16};
  EXPECT_EQ(planned_block_bytes(*f.model.model, options), 0);
  MemoryPlan beside;
  beside.add("all", 1000);
  EXPECT_EQ(kv_bytes_within(1000, beside, *f.model.model, options).value(), 0);
  EXPECT_FALSE(kv_bytes_within(999, beside, *f.model.model, options).ok());
}

}  // namespace
}  // namespace ibid
