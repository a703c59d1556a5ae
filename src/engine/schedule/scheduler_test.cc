// Rules of the plan that no request can trigger yet, over sequences made by hand.
#include "engine/schedule/scheduler.h"

#include <gtest/gtest.h>

namespace ibid {
namespace {

struct Queue {
  explicit Queue(int32_t n_blocks)
      : cache({.n_blocks = n_blocks, .block_len = 4}),
        scheduler(cache, cost, nullptr, {.budget = {64, 8}, .max_sequences = 8, .context_len = 16}) {}
  Sequence& add(int32_t prompt_len) {
    auto s = std::make_unique<Sequence>();
    Request request;
    request.id = RequestId{sequences.size() + 1};
    s->id = SeqId{static_cast<int64_t>(sequences.size())};
    s->request = std::make_shared<const Request>(std::move(request));
    s->tokens.assign(static_cast<size_t>(prompt_len), TokenId{static_cast<int32_t>(sequences.size())});
    s->prompt_len = prompt_len;
    s->n_scored = prompt_len - 1;
    s->place.enter(cache.tree().hold({}));
    scheduler.make_room(*s->request, sequences.size() + 1);
    scheduler.enqueue(*s);
    return *sequences.emplace_back(std::move(s));
  }
  // Applies the plan as a step would: all its shares are computed.
  void settle(const StepPlan& plan) {
    for (const Share& share : plan.shares) share.sequence->place.advance(share.n_tokens);
  }

  BlockCache cache;
  StepCost cost;
  Scheduler scheduler;
  std::vector<std::unique_ptr<Sequence>> sequences;
};

TEST(Scheduler, SequenceThatLosesItsBlocksLosesItsShare) {
  Queue queue(5);
  Sequence& wants_many = queue.add(4);
  Sequence& wants_one = queue.add(4);
  queue.settle(queue.scheduler.plan());
  ASSERT_EQ(queue.scheduler.running().size(), 2u);
  // The older one needs more tokens than there are blocks for, after the younger one's next token.
  wants_one.tokens.push_back(TokenId{9});
  wants_many.tokens.resize(16, TokenId{9});
  const StepPlan& plan = queue.scheduler.plan();
  ASSERT_EQ(plan.shares.size(), 1u);
  EXPECT_EQ(plan.shares[0].sequence, &wants_many);
  EXPECT_EQ(plan.n_tokens, 12);
  EXPECT_EQ(plan.n_rows, 1);
  EXPECT_EQ(wants_one.state, SequenceState::kWaiting);
  for (const Share& share : plan.shares) {
    const Sequence& s = *share.sequence;
    EXPECT_EQ(s.state, SequenceState::kRunning) << "a share of one that was preempted";
    EXPECT_GE(static_cast<int32_t>(s.place.blocks().size()), queue.cache.n_blocks_for(s.n_computed() + share.n_tokens));
  }
}

TEST(Scheduler, WhileTheFirstInOrderDoesNotFitNoOtherTakesBlocks) {
  Queue queue(6);
  queue.add(8);
  queue.settle(queue.scheduler.plan());
  Sequence& large = queue.add(15);
  queue.scheduler.plan();  // finds no blocks for it
  Sequence& small = queue.add(2);
  EXPECT_TRUE(queue.scheduler.plan().shares.empty());
  EXPECT_EQ(large.state, SequenceState::kWaiting);
  EXPECT_EQ(small.state, SequenceState::kWaiting);
}

TEST(Scheduler, DraftsComeAfterEverybodysNextToken) {
  Queue queue(16);
  std::vector<Sequence*> all;
  for (int i = 0; i < 6; ++i) all.push_back(&queue.add(3));
  queue.settle(queue.scheduler.plan());
  for (Sequence* s : all) {
    s->tokens.push_back(TokenId{9});
    for (int i = 0; i < 5; ++i) s->drafts.add(TokenId{i}, i - 1);
  }
  const StepPlan& plan = queue.scheduler.plan();  // of 8 rows
  ASSERT_EQ(plan.shares.size(), 6u);
  EXPECT_EQ(plan.shares[0].n_drafts, 2);
  EXPECT_EQ(plan.shares[0].n_tokens, 3);
  for (size_t i = 1; i < 6; ++i) EXPECT_EQ(plan.shares[i].n_drafts, 0);
  EXPECT_EQ(plan.rows[0], (Row{0, 0, RowPurpose::kDraw}));
  EXPECT_EQ(plan.rows[1], (Row{0, 1, RowPurpose::kVerify}));
  EXPECT_EQ(plan.rows[2], (Row{0, 2, RowPurpose::kVerify}));
  EXPECT_EQ(plan.rows[3], (Row{1, 0, RowPurpose::kDraw}));
}

TEST(Scheduler, DraftsTakeNoBlockFromOthers) {
  Queue queue(4);
  Sequence& first = queue.add(7);
  Sequence& second = queue.add(3);
  queue.settle(queue.scheduler.plan());
  ASSERT_EQ(queue.scheduler.running().size(), 2u);
  first.tokens.push_back(TokenId{9});
  second.tokens.push_back(TokenId{9});
  for (int i = 0; i < 6; ++i) first.drafts.add(TokenId{i}, i - 1);
  const StepPlan& plan = queue.scheduler.plan();
  ASSERT_EQ(plan.shares.size(), 2u);
  EXPECT_EQ(plan.shares[0].n_drafts, 4);  // the one free block
  EXPECT_EQ(queue.scheduler.n_preemptions(), 0);
}

}  // namespace
}  // namespace ibid
