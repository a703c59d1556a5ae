// Rules of the plan that no request can reach yet, over sequences made by hand.
#include "engine/scheduler.h"

#include <gtest/gtest.h>

namespace ibid {
namespace {

struct Queue {
  explicit Queue(int32_t n_blocks)
      : cache({.n_blocks = n_blocks, .block_len = 4}),
        scheduler(cache, {.max_tokens = 64, .max_rows = 8, .max_sequences = 8, .context_len = 16}) {
    scheduler.make_room(8);
  }
  Sequence& add(int32_t prompt_len) {
    auto s = std::make_unique<Sequence>();
    Request request;
    request.id = RequestId{sequences.size() + 1};
    s->id = SeqId{static_cast<int64_t>(sequences.size())};
    s->request = std::make_shared<const Request>(std::move(request));
    s->tokens.assign(static_cast<size_t>(prompt_len), TokenId{static_cast<int32_t>(sequences.size())});
    s->prompt_len = prompt_len;
    s->n_scored = prompt_len - 1;
    s->scope = cache.tree().hold({});
    scheduler.enqueue(*s);
    return *sequences.emplace_back(std::move(s));
  }
  // What a step would make of the plan: all its shares are computed.
  void settle(const StepPlan& plan) {
    for (const Share& share : plan.shares) share.sequence->n_computed += share.n_tokens;
  }

  BlockCache cache;
  Scheduler scheduler;
  std::vector<std::unique_ptr<Sequence>> sequences;
};

TEST(Scheduler, WhoHasAShareOfThePlanKeepsItsBlocks) {
  Queue queue(5);
  Sequence& wants_many = queue.add(4);
  Sequence& wants_one = queue.add(4);
  queue.settle(queue.scheduler.plan());
  ASSERT_EQ(queue.scheduler.running().size(), 2u);
  // As with drafts: the older one wants more tokens than there are blocks for, behind the younger one's next token.
  wants_one.tokens.push_back(TokenId{9});
  wants_many.tokens.resize(16, TokenId{9});
  const StepPlan& plan = queue.scheduler.plan();
  ASSERT_FALSE(plan.shares.empty());
  for (const Share& share : plan.shares) {
    const Sequence& s = *share.sequence;
    EXPECT_EQ(s.state, SequenceState::kRunning) << "a share of one that was preempted";
    EXPECT_GE(static_cast<int32_t>(s.blocks.size()), queue.cache.n_blocks_for(s.n_computed + share.n_tokens));
  }
}

}  // namespace
}  // namespace ibid
