#include "worker/worker.h"

#include <gtest/gtest.h>

#include <cstring>

#include "model/testing/loaded_model.h"
#include "worker/model_pass.h"

namespace ibid {
namespace {

constexpr int32_t kContext = 64;

struct Fixture {
  explicit Fixture(std::vector<int32_t> hidden_layers = {}, int32_t n_inflight = 1) {
    const auto file = testing::tiny_model_file({.context_len = kContext});
    const ModelOptions options = {.context_len = kContext, .step_tokens = 32, .max_rows = 8, .max_sequences = 4};
    loaded = std::make_unique<testing::LoadedModel>(file, options, 1);
    auto pass = std::make_unique<ModelPass>(*loaded->model, *loaded->stream, std::span<const TokenId>(), "");
    worker = Worker::create(std::move(pass), *loaded->stream,
                            {.kv_dtype = DType::kF32,
                             .block_len = 8,
                             .n_blocks = 8,
                             .step_tokens = 32,
                             .max_rows = 8,
                             .hidden_layers = std::move(hidden_layers),
                             .n_inflight = n_inflight})
                 .value();
  }
  // Tokens [first, first + n) of a sequence that lies in blocks 0, 1, 2 ...; the last one's row.
  StepOutput compute(int32_t first, int32_t n, bool wants_hidden = false) {
    return worker->wait(launch(first, n, wants_hidden));
  }
  Inflight launch(int32_t first, int32_t n, bool wants_hidden = false) {
    tokens.clear(), positions.clear(), slots.clear();
    for (int32_t i = first; i < first + n; ++i) {
      tokens.push_back(TokenId{(i * 7 + 3) % 50});
      positions.push_back(i);
      slots.push_back(i);
    }
    query_start = {0, n};
    block_start = {0, 8};
    for (int32_t b = 0; b < 8; ++b) table[static_cast<size_t>(b)] = BlockId{b};
    kv_len = first + n;
    row = n - 1;
    batch.n_tokens = n;
    batch.n_sequences = batch.n_rows = 1;
    batch.block_len = 8;
    batch.tokens = tokens.data();
    batch.positions = positions.data();
    batch.slots = slots.data();
    batch.query_start = query_start.data();
    batch.kv_len = &kv_len;
    batch.block_start = block_start.data();
    batch.block_table = table.data();
    batch.logit_rows = &row;
    return worker->launch({.batch = &batch, .wants_hidden = wants_hidden});
  }

  std::unique_ptr<testing::LoadedModel> loaded;
  std::unique_ptr<Worker> worker;
  ForwardBatch batch;
  std::vector<TokenId> tokens;
  std::vector<int32_t> positions, slots;
  std::array<int32_t, 2> query_start{}, block_start{};
  std::array<BlockId, 8> table{};
  int32_t kv_len = 0, row = 0;
};

std::vector<float> copy_of(std::span<const float> values) { return {values.begin(), values.end()}; }

TEST(Worker, StepsGoOnFromItsOwnKeysAndValues) {
  Fixture whole, pieces;
  const std::vector<float> expected = copy_of(whole.compute(0, 20).logits);
  pieces.compute(0, 13);
  EXPECT_EQ(copy_of(pieces.compute(13, 7).logits), expected);
}

TEST(Worker, CopiesComeBeforeTheStepAndInTheirOrder) {
  Fixture plain, copied;
  plain.compute(0, 12);
  const std::vector<float> expected = copy_of(plain.compute(12, 1).logits);
  copied.compute(0, 12);
  // Block 1 goes to 5 and by 6 to 7, is overwritten, and comes back.
  const BlockCopy away[] = {
      {BlockId{1}, BlockId{5}}, {BlockId{5}, BlockId{6}}, {BlockId{6}, BlockId{7}}, {BlockId{0}, BlockId{1}}};
  copied.worker->wait(copied.worker->launch({.copies = away}));
  const BlockCopy back[] = {{BlockId{7}, BlockId{1}}};
  copied.worker->wait(copied.worker->launch({.copies = back}));
  EXPECT_EQ(copy_of(copied.compute(12, 1).logits), expected);
}

TEST(Worker, SlotsMoveInAllLayers) {
  Fixture plain, moved;
  plain.compute(0, 12);
  const std::vector<float> expected = copy_of(plain.compute(12, 1).logits);
  moved.compute(0, 12);
  const int32_t home[] = {9, 11}, away[] = {30, 31};
  moved.worker->copy_slots(home, away);
  const int32_t other[] = {0, 1};
  moved.worker->copy_slots(other, home);
  moved.worker->copy_slots(away, home);
  EXPECT_EQ(copy_of(moved.compute(12, 1).logits), expected);
}

TEST(Worker, HiddenStatesOfAllTokensWhicheverRowsAreNeeded) {
  Fixture plain, asked({0, 1});
  const std::vector<float> expected = copy_of(plain.compute(0, 9).logits);
  const StepOutput output = asked.compute(0, 9, true);
  EXPECT_EQ(copy_of(output.logits), expected);
  ASSERT_EQ(output.hidden.size(), 2u);
  std::vector<std::vector<float>> rows;
  for (const HostRows& layer : output.hidden) {
    ASSERT_EQ(layer.n(), 9u);
    for (size_t t = 0; t < 9; ++t) rows.push_back(copy_of(layer.row(t)));
  }
  EXPECT_NE(rows[8], rows[17]);  // the two layers differ
  // The same in two pieces.
  Fixture pieces({0, 1});
  pieces.compute(0, 4, true);
  const StepOutput second = pieces.compute(4, 5, true);
  for (size_t layer = 0; layer < 2; ++layer) {
    for (size_t t = 0; t < 5; ++t) EXPECT_EQ(copy_of(second.hidden[layer].row(t)), rows[layer * 9 + 4 + t]);
  }
  EXPECT_TRUE(asked.compute(9, 1).hidden.empty());
}

TEST(Worker, TwoStepsAreInFlightAndEachHasItsOwnOutputs) {
  Fixture plain({0, 1}), two({0, 1}, 2);
  const std::vector<float> first = copy_of(plain.compute(0, 9).logits);
  const StepOutput alone = plain.compute(9, 4, true);
  const std::vector<float> second = copy_of(alone.logits), hidden = copy_of(alone.hidden[1].values);
  const Inflight a = two.launch(0, 9), b = two.launch(9, 4, true);
  const StepOutput of_a = two.worker->wait(a), of_b = two.worker->wait(b);
  EXPECT_EQ(copy_of(of_a.logits), first);
  EXPECT_TRUE(of_a.hidden.empty());
  EXPECT_EQ(copy_of(of_b.logits), second);
  EXPECT_EQ(copy_of(of_b.hidden[1].values), hidden);
  GTEST_FLAG_SET(death_test_style, "fast");
  const Inflight c = two.launch(13, 1), d = two.launch(14, 1);
  EXPECT_DEATH(two.launch(15, 1), "before an earlier one was waited for");
  EXPECT_DEATH(two.worker->wait(d), "steps are waited for in their order");
  two.worker->wait(c), two.worker->wait(d);
}

}  // namespace
}  // namespace ibid
