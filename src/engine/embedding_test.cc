// A sequence's vector has the same bytes alone and in company, however its prompt was cut, preempted or cached, and
// equals the one computed from the model's own hidden states.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>

#include "engine/engine.h"
#include "engine/memory_plan.h"
#include "fake_model.h"
#include "finished_outputs.h"
#include "model/testing/loaded_model.h"

namespace ibid {
namespace {

using testing::LoadedModel;

constexpr int32_t kContext = 128;
constexpr Pooling kPoolings[] = {Pooling::kMean, Pooling::kLast, Pooling::kFirst, Pooling::kEach};
constexpr size_t kNPoolings = std::size(kPoolings);

struct Fixture {
  explicit Fixture(int32_t step_tokens = 64, int32_t n_blocks = 64)
      : model(testing::tiny_model_file({}),
              {.context_len = kContext, .step_tokens = 128, .max_rows = 64, .max_sequences = 8}) {
    EngineOptions options{.block_len = 8, .kv_dtype = DType::kF32, .step_tokens = step_tokens, .max_sequences = 8};
    options.kv_bytes = n_blocks * kv_bytes_of_block(*model.model, DType::kF32, 8);
    core = Engine::create(*model.model, nullptr, *model.stream, options, clock).value();
  }
  // Sequence `which` of some whose lengths differ.
  Request text(uint64_t which, Pooling pooling) {
    Request r;
    r.id = RequestId{next_id++};
    r.prompt = testing::some_tokens(20 + static_cast<int64_t>(which * 37 % 90), 96, which);
    r.max_tokens = 0;
    r.pooling = pooling;
    return r;
  }
  Request answer(uint64_t which) {
    Request r = text(which, Pooling::kNone);
    r.max_tokens = 12;
    r.sampling.ignore_eos = true;
    return r;
  }
  std::map<RequestId, Output> drain() { return testing::finished_outputs(*core); }
  Output alone(Request r) {
    const RequestId id = r.id;
    EXPECT_TRUE(core->submit(std::move(r)).ok());
    return std::move(drain().at(id));
  }

  ManualClock clock;
  LoadedModel model;
  std::unique_ptr<Engine> core;
  uint64_t next_id = 1;
};

std::vector<float> vector_alone(uint64_t which, Pooling pooling) {
  Fixture f;
  const Request r = f.text(which, pooling);
  const int64_t n_vectors = pooling == Pooling::kEach ? std::ssize(r.prompt) : 1;
  Output out = f.alone(r);
  EXPECT_EQ(static_cast<int64_t>(out.ending->embedding.size()), n_vectors * f.model.model->config().width);
  return std::move(out.ending->embedding);
}

TEST(Embedding, IsThePoolOfTheModelsOwnHiddenStates) {
  Fixture f;
  const Request r = f.text(3, Pooling::kMean);
  const auto n = static_cast<size_t>(r.prompt.size());
  std::vector<float> states;  // [n, C]
  f.model.model->set_tap([&](std::string_view name, int, const TensorView& x) {
    if (name == "final_norm") states.assign(x.row_as<const float>(0), x.row_as<const float>(0) + x.n_elements());
  });
  f.model.logits(r.prompt, {.kv_dtype = DType::kF32});
  f.model.model->set_tap(nullptr);
  const auto C = static_cast<size_t>(f.model.model->config().width);
  ASSERT_EQ(states.size(), n * C);
  for (const Pooling pooling : kPoolings) {
    const std::vector<float> pooled = vector_alone(3, pooling);
    if (pooling == Pooling::kEach) {
      EXPECT_EQ(pooled, states);
      continue;
    }
    ASSERT_EQ(pooled.size(), C);
    for (size_t c = 0; c < C; ++c) {
      double sum = 0;
      for (size_t i = 0; i < n; ++i) sum += static_cast<double>(states[i * C + c]);
      const float want = pooling == Pooling::kMean   ? static_cast<float>(sum / static_cast<double>(n))
                         : pooling == Pooling::kLast ? states[(n - 1) * C + c]
                                                     : states[c];
      EXPECT_EQ(pooled[c], want) << "value " << c << ", pooling " << static_cast<int>(pooling);
    }
  }
}

TEST(Embedding, IsTheSameBytesInPiecesInCompanyAndPreempted) {
  for (const int32_t step_tokens : {8, 13, 64, 128}) {
    Fixture f(step_tokens, 20);  // few blocks: some lose theirs
    std::map<RequestId, std::pair<uint64_t, Pooling>> texts;
    for (uint64_t i = 0; i < 12; ++i) {
      Request text = f.text(i, kPoolings[i % kNPoolings]);
      texts[text.id] = {i, text.pooling};
      ASSERT_TRUE(f.core->submit(std::move(text)).ok());
      ASSERT_TRUE(f.core->submit(f.answer(i + 50)).ok());
    }
    std::vector<Output> out;
    for (int step = 0; f.core->step(out); ++step) {
      if (step % 3 == 2) f.core->preempt(RequestId{1 + static_cast<uint64_t>(step / 3) % 24});
    }
    EXPECT_GT(f.core->stats().n_preemptions, 0);
    for (const Output& o : out) {
      if (!o.finished || !texts.contains(o.request)) continue;
      const auto [which, pooling] = texts[o.request];
      EXPECT_EQ(o.ending->embedding, vector_alone(which, pooling))
          << "text " << which << " in steps of " << step_tokens;
      EXPECT_EQ(o.usage.completion_tokens, 0);
      texts.erase(o.request);
    }
    EXPECT_TRUE(texts.empty());
    f.core->self_check();
  }
}

TEST(Embedding, OfAllTokensTakesNothingFromTheCacheAndOfTheLastOneDoes) {
  Fixture f;
  f.alone(f.answer(5));
  for (const Pooling pooling : kPoolings) {
    const Output again = f.alone(f.text(5, pooling));
    EXPECT_EQ(again.ending->embedding, vector_alone(5, pooling));
    EXPECT_EQ(again.usage.cached_tokens > 0, pooling == Pooling::kLast);
  }
}

TEST(Embedding, IsNoAnswer) {
  Fixture f;
  const auto refusal = [&](auto change) {
    Request r = f.text(1, Pooling::kMean);
    change(r);
    const Status status = f.core->submit(std::move(r));
    return status ? std::string() : status.error().message;
  };
  EXPECT_NE(refusal([](Request& r) { r.n = 2; }).find("n 1"), std::string::npos);
  EXPECT_NE(refusal([](Request& r) { r.max_tokens = 1; }).find("max_tokens 0"), std::string::npos);
  EXPECT_NE(refusal([](Request& r) { r.prompt_logprobs = 0; }).find("prompt_logprobs"), std::string::npos);
}

// The vector of a sequence with token 13 is NaN.
class UnsoundModel final : public ForwardPass {
 public:
  UnsoundModel() : facts_(fake_.facts()) { facts_.width = 4; }
  const ModelFacts& facts() const override { return facts_; }
  void run(const ForwardBatch& batch, std::span<const PagedKv> kv, const TensorView& logits,
           const HiddenStates& hidden) override {
    fake_.run(batch, kv, logits, hidden);
    for (int32_t i = 0; !hidden.out.empty() && i < batch.n_tokens; ++i) {
      float* row = hidden.out.back().row_as<float>(i);
      std::fill_n(row, 4, batch.tokens[i] == TokenId{13} ? std::numeric_limits<float>::quiet_NaN() : 2.0f);
    }
  }

 private:
  testing::FakeModel fake_{kContext};
  ModelFacts facts_;
};

TEST(Embedding, OfStatesThatAreNoNumbersIsAnErrorOfItsRequestAlone) {
  ThreadTeam team{1};
  Stream stream{team};
  ManualClock clock;
  auto model = std::make_unique<UnsoundModel>();
  EngineOptions options{.kv_dtype = DType::kF32, .step_tokens = 16, .max_sequences = 4};
  options.kv_bytes = 64 * KvStore::block_bytes(model->facts(), options.kv_dtype, options.block_len);
  auto core = Engine::create(std::move(model), nullptr, stream, options, clock).value();
  for (uint64_t id : {1, 2}) {
    Request r;
    r.id = RequestId{id};
    r.prompt.assign(40, TokenId{7});
    if (id == 1) r.prompt[30] = TokenId{13};
    r.max_tokens = 0;
    r.pooling = Pooling::kMean;
    ASSERT_TRUE(core->submit(std::move(r)).ok());
  }
  std::vector<Output> out;
  while (core->step(out)) {
  }
  int n_ended = 0;
  for (const Output& o : out) {
    if (!o.finished) continue;
    ++n_ended;
    if (o.request == RequestId{1}) {
      EXPECT_EQ(o.reason, FinishReason::kError);
      EXPECT_TRUE(o.ending->embedding.empty());
    } else {
      EXPECT_EQ(o.ending->embedding, std::vector<float>(4, 2.0f));
    }
  }
  EXPECT_EQ(n_ended, 2);
}

}  // namespace
}  // namespace ibid
