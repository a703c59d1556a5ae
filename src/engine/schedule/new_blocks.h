// NewBlocks: the blocks that have not been written yet. The system provides their memory on the first write, which
// takes time that a step's price must include (engine/state/step_load.h). One thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "cache/tier.h"
#include "engine/state/step_plan.h"

namespace ibid {

class NewBlocks {
 public:
  NewBlocks(int32_t n_blocks, int32_t block_len)
      : block_len_(block_len), n_new_(n_blocks), is_new_(static_cast<size_t>(n_blocks), true) {}

  bool has(BlockId block) const {  // kNone: false
    return block != BlockId::kNone && is_new_[static_cast<size_t>(raw(block))];
  }
  // Positions of the new ones among the blocks that a share's tokens go to.
  int32_t n_positions(const Share& share) const;
  // What this plan copies and computes is written; its load counts the blocks that drafts are the first to come to.
  void write(StepPlan& plan);
  // So is this one; had it not been?
  bool write(BlockId block);

 private:
  // Of the sequence's blocks; none for an encoder's.
  std::span<const BlockId> blocks_of(const Share& share) const;

  const int32_t block_len_;
  int32_t n_new_;
  std::vector<bool> is_new_;
};

}  // namespace ibid
