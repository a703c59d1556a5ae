// Batches written out: every array that a model reads, for plans made by hand.
#include "engine/step/batch_builder.h"

#include <gtest/gtest.h>

#include <vector>

namespace ibid {
namespace {

Sequence sequence(std::vector<int> tokens, int32_t prompt_len, int32_t n_computed, std::vector<int> blocks) {
  Sequence s;
  s.request = std::make_shared<const Request>();
  for (const int t : tokens) s.tokens.push_back(TokenId{t});
  s.prompt_len = prompt_len;
  s.n_scored = prompt_len - 1;
  BlockTable table;
  for (const int b : blocks) table.push_back(BlockId{b});
  s.place = {std::move(table), n_computed};
  return s;
}

StepPlan plan_of(std::vector<Share> shares) {
  StepPlan plan;
  for (const Share& share : shares) {
    plan.n_tokens += share.n_tokens;
    plan.n_rows += share.n_rows;
  }
  plan.shares = std::move(shares);
  list_rows(plan);
  return plan;
}

// A batch as plain lists.
struct Arrays {
  std::vector<int> tokens, positions, slots, query_start, kv_len, logit_rows, block_start;
  std::vector<std::vector<int>> block_table;
  bool operator==(const Arrays&) const = default;
};

Arrays arrays_of(const ForwardBatch& b) {
  Arrays a;
  for (int i = 0; i < b.n_tokens; ++i) {
    a.tokens.push_back(raw(b.tokens[i]));
    a.positions.push_back(b.positions[i]);
    a.slots.push_back(b.slots[i]);
  }
  for (int i = 0; i <= b.n_sequences; ++i) {
    a.query_start.push_back(b.query_start[i]);
    a.block_start.push_back(b.block_start[i]);
  }
  for (int i = 0; i < b.n_rows; ++i) a.logit_rows.push_back(b.logit_rows[i]);
  for (int s = 0; s < b.n_sequences; ++s) {
    a.kv_len.push_back(b.kv_len[s]);
    a.block_table.emplace_back();
    for (const BlockId block : b.blocks(s)) a.block_table.back().push_back(raw(block));
  }
  return a;
}

BatchBuilder builder(int32_t block_len) {
  return BatchBuilder({.n_tokens = 64, .n_sequences = 8, .n_rows = 16, .context_len = 64, .block_len = block_len});
}

Arrays built(const StepPlan& plan, int32_t block_len = 4) {
  BatchBuilder b = builder(block_len);
  return arrays_of(b.build(plan));
}

TEST(Batch, OnePromptAtOnce) {
  Sequence s = sequence({50, 51, 52, 53, 54}, 5, 0, {7, 2});
  const Arrays expected = {
      .tokens = {50, 51, 52, 53, 54},
      .positions = {0, 1, 2, 3, 4},
      .slots = {28, 29, 30, 31, 8},
      .query_start = {0, 5},
      .kv_len = {5},
      .logit_rows = {4},
      .block_start = {0, 2},
      .block_table = {{7, 2}},
  };
  EXPECT_EQ(built(plan_of({{&s, 5, 1}})), expected);
}

TEST(Batch, APieceOfAPromptHasPositionsAfterTheComputedOnesAndNoRow) {
  Sequence s = sequence({50, 51, 52, 53, 54, 55, 56, 57, 58}, 9, 3, {7, 2, 5});
  const Arrays expected = {
      .tokens = {53, 54, 55},
      .positions = {3, 4, 5},
      .slots = {31, 8, 9},
      .query_start = {0, 3},
      .kv_len = {6},
      .logit_rows = {},
      .block_start = {0, 2},
      .block_table = {{7, 2}},
  };
  EXPECT_EQ(built(plan_of({{&s, 3, 0}})), expected);
}

TEST(Batch, ADecodeIsOneTokenThatSeesAllBeforeIt) {
  Sequence s = sequence({50, 51, 52, 53, 60, 61}, 4, 5, {7, 2});
  const Arrays expected = {
      .tokens = {61},
      .positions = {5},
      .slots = {9},
      .query_start = {0, 1},
      .kv_len = {6},
      .logit_rows = {0},
      .block_start = {0, 2},
      .block_table = {{7, 2}},
  };
  EXPECT_EQ(built(plan_of({{&s, 1, 1}})), expected);
}

// Prefill, the middle of a prefill, two decodes and a recomputed answer in one batch.
TEST(Batch, DecodesPiecesAndARecomputedAnswerInOneBatch) {
  Sequence a = sequence({10, 11, 12, 90}, 3, 3, {4});
  Sequence b = sequence({20, 21, 22, 23, 24, 91, 92}, 5, 6, {0, 9});
  Sequence c = sequence({30, 31, 32, 33, 34, 35, 36, 37, 38, 39}, 10, 4, {1, 6, 8});
  Sequence d = sequence({40, 41, 93, 94}, 2, 0, {3, 5});
  const Arrays expected = {
      .tokens = {90, 92, 34, 35, 36, 37, 40, 41, 93, 94},
      .positions = {3, 6, 4, 5, 6, 7, 0, 1, 2, 3},
      .slots = {19, 38, 24, 25, 26, 27, 12, 13, 14, 15},
      .query_start = {0, 1, 2, 6, 10},
      .kv_len = {4, 7, 8, 4},
      .logit_rows = {0, 1, 9},
      .block_start = {0, 1, 3, 5, 6},
      .block_table = {{4}, {0, 9}, {1, 6}, {3}},
  };
  EXPECT_EQ(built(plan_of({{&a, 1, 1}, {&b, 1, 1}, {&c, 4, 0}, {&d, 4, 1}})), expected);
}

// Two sequences that share their first block and have a block of their own each: positions go on, slots differ.
TEST(Batch, SharedBlocksStandInBothTables) {
  Sequence a = sequence({10, 11, 12, 13, 14}, 5, 4, {6, 1});
  Sequence b = sequence({10, 11, 12, 13, 24, 25}, 6, 4, {6, 3});
  const Arrays expected = {
      .tokens = {14, 24, 25},
      .positions = {4, 4, 5},
      .slots = {4, 12, 13},
      .query_start = {0, 1, 3},
      .kv_len = {5, 6},
      .logit_rows = {0, 2},
      .block_start = {0, 2, 4},
      .block_table = {{6, 1}, {6, 3}},
  };
  EXPECT_EQ(built(plan_of({{&a, 1, 1}, {&b, 2, 1}})), expected);
}

TEST(Batch, AScoredPromptHasARowForEachOfItsTokens) {
  Sequence a = sequence({10, 90}, 1, 1, {2});
  Sequence s = sequence({50, 51, 52, 53, 54, 55}, 6, 2, {7, 0});
  const Arrays expected = {
      .tokens = {90, 52, 53, 54},
      .positions = {1, 2, 3, 4},
      .slots = {9, 30, 31, 0},
      .query_start = {0, 1, 4},
      .kv_len = {2, 5},
      .logit_rows = {0, 1, 2, 3},
      .block_start = {0, 1, 3},
      .block_table = {{2}, {7, 0}},
  };
  EXPECT_EQ(built(plan_of({{&a, 1, 1}, {&s, 3, 3}})), expected);
}

// A sequence owns blocks for what is to come: the batch shows only those that this step reads or writes.
TEST(Batch, BlocksOfTheFutureDoNotShow) {
  Sequence s = sequence({50, 51, 52}, 3, 0, {7, 2, 5, 1});
  const Arrays expected = {
      .tokens = {50, 51, 52},
      .positions = {0, 1, 2},
      .slots = {28, 29, 30},
      .query_start = {0, 3},
      .kv_len = {3},
      .logit_rows = {2},
      .block_start = {0, 1},
      .block_table = {{7}},
  };
  EXPECT_EQ(built(plan_of({{&s, 3, 1}})), expected);
}

TEST(Batch, TheEdgeOfABlockNeedsNoFurtherBlock) {
  Sequence s = sequence({50, 51, 52, 53, 54, 55, 56, 57, 58}, 8, 7, {3, 0});
  const Arrays expected = {
      .tokens = {57},
      .positions = {7},
      .slots = {3},
      .query_start = {0, 1},
      .kv_len = {8},
      .logit_rows = {},
      .block_start = {0, 2},
      .block_table = {{3, 0}},
  };
  EXPECT_EQ(built(plan_of({{&s, 1, 0}})), expected);
}

// Row P2 with the block lengths that an engine may have: slot = blocks[t / B] * B + t % B.
TEST(Batch, PositionsFindTheirSlotForEveryBlockLength) {
  for (const int32_t len : {8, 16, 32}) {
    std::vector<int> tokens(64);
    Sequence s = sequence(tokens, 64, 0, {9, 4, 7, 1, 3, 8, 2, 6});
    const Arrays a = built(plan_of({{&s, 64, 1}}), len);
    for (int t = 0; t < 64; ++t) {
      EXPECT_EQ(a.slots[static_cast<size_t>(t)], raw(s.place.blocks()[static_cast<size_t>(t / len)]) * len + t % len);
    }
  }
}

TEST(Batch, ABuilderForgetsTheBatchBefore) {
  BatchBuilder b = builder(4);
  Sequence s = sequence({50, 51, 52, 53, 54}, 5, 0, {7, 2});
  Sequence t = sequence({60}, 1, 0, {1});
  const Arrays alone = built(plan_of({{&t, 1, 1}}));
  b.build(plan_of({{&s, 5, 1}}));
  EXPECT_EQ(arrays_of(b.build(plan_of({{&t, 1, 1}}))), alone);
}

// A sequence with a draft tree after its last token, and one that begins.
TEST(Batch, SequenceStartsFromAStateAndWritesTheRequestedStates) {
  BatchBuilder b(
      {.n_tokens = 64, .n_sequences = 8, .n_rows = 16, .context_len = 64, .block_len = 4, .keeps_states = true});
  Sequence s = sequence({50, 51, 52, 53, 54}, 5, 3, {7, 2}), t = sequence({60, 61}, 2, 0, {1});
  s.drafts.add(TokenId{70}, -1);
  s.drafts.add(TokenId{71}, -1);
  s.drafts.add(TokenId{72}, 1);
  s.place = {s.place.blocks(),
             3,
             {{3, StateId{9}}},
             {{5, StateId{9}}, {4, StateId{6}}, {6, StateId{2}}, {7, StateId{3}}, {8, StateId{4}}}};
  t.place = {t.place.blocks(), 0, {}, {{2, StateId{5}}}};
  const StepPlan plan = plan_of({{&s, 5, 4, 3}, {&t, 2, 1}});
  const ForwardBatch batch = b.build(plan);
  EXPECT_EQ(std::vector<int>(batch.state_in, batch.state_in + 2), (std::vector<int>{9, -1}));
  EXPECT_EQ(std::vector<int>(batch.state_out, batch.state_out + 7), (std::vector<int>{6, 9, 2, 3, 4, -1, 5}));
  std::vector<int> before;
  for (int i = 0; i < 7; ++i) before.push_back(batch.before(i < 5 ? 0 : 1, i));
  EXPECT_EQ(before, (std::vector<int>{-1, 0, 1, 1, 3, -1, 5}));
  EXPECT_EQ(builder(4).build(plan).state_out, nullptr);
}

TEST(Batch, AnEmptyPlanIsAnEmptyBatch) {
  BatchBuilder empty = builder(4);
  const ForwardBatch b = empty.build({});
  EXPECT_EQ(b.n_tokens, 0);
  EXPECT_EQ(b.n_sequences, 0);
  EXPECT_EQ(b.n_rows, 0);
  EXPECT_EQ(b.query_start[0], 0);
}

}  // namespace
}  // namespace ibid
