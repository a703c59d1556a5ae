// StepPlan: what one step will do, decided by the scheduler. Plain data, reused from step to step.
#pragma once

#include <cstdint>
#include <vector>

#include "cache/block_cache.h"
#include "engine/request.h"

namespace ibid {

struct Sequence;

// `sequence` computes its tokens [n_computed, n_computed + n_tokens); the last n_rows of them give logits. Positions up
// to there are writable in its block table.
struct Share {
  Sequence* sequence = nullptr;
  int32_t n_tokens = 0;
  int32_t n_rows = 0;
};

struct StepPlan {
  std::vector<BlockCopy> copies;  // done in this order, before anything is computed
  std::vector<Share> shares;
  std::vector<RequestId> starved;  // an allocation failed for them: they have no share and are to end
  int32_t n_tokens = 0;            // T
  int32_t n_rows = 0;              // R

  bool empty() const { return copies.empty() && shares.empty(); }
  void clear() {
    copies.clear();
    shares.clear();
    starved.clear();
    n_tokens = n_rows = 0;
  }
};

}  // namespace ibid
