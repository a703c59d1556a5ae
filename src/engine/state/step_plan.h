// StepPlan: what one step will do, decided by the scheduler. Plain data, reused from step to step.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "cache/block_cache.h"
#include "engine/state/request.h"
#include "engine/state/step_load.h"

namespace ibid {

struct Sequence;

// `sequence` computes its tokens from n_computed on and, after its last one, the first n_drafts of its drafts:
// n_tokens in all, of which the last n_rows give logits. So many positions are writable in its block table.
struct Share {
  Sequence* sequence = nullptr;
  int32_t n_tokens = 0;
  int32_t n_rows = 0;
  int32_t n_drafts = 0;
  int32_t n_new_positions = 0;  // StepLoad's
  int32_t n_kept = 0;           // after it the sequence keeps so many rows (SequencePlace::kept_blocks()); 0: all
  int32_t n_certain() const { return n_tokens - n_drafts; }
};

enum class RowPurpose : uint8_t {
  kScore,   // how likely was the prompt's next token?
  kDraw,    // the sequence's next token
  kVerify,  // the token after a draft, if the draft is what is drawn before it
  kRank,    // an encoder's scores, of a sequence's first token
};

// One row of logits. The rows of a share stand together, in the order of its tokens.
struct Row {
  int32_t share = 0;
  int32_t token = 0;  // of the share's tokens, the one that the row stands after
  RowPurpose purpose = RowPurpose::kDraw;
  bool operator==(const Row&) const = default;
};

struct StepPlan {
  std::vector<BlockCopy> copies;            // done in this order, before anything is computed
  std::span<const StateCopy> state_copies;  // these too; valid until the step is settled
  std::vector<Share> shares;
  std::vector<Row> rows;           // of all shares, in their order
  std::vector<RequestId> starved;  // an allocation failed for them: they have no share and are to end
  int32_t n_tokens = 0;            // T
  int32_t n_rows = 0;              // R
  StepLoad load;                   // of all shares
  double seconds = 0;              // what the step is expected to take; 0: nothing is known

  void add(const Share& share);
  // Takes back the share of this sequence, if it has one: it has lost the blocks that the share counts on. What was to
  // be copied is copied all the same, before anybody writes.
  void withdraw(const Sequence& sequence);
  bool empty() const { return copies.empty() && state_copies.empty() && shares.empty(); }
  void clear() {
    copies.clear();
    state_copies = {};
    shares.clear();
    rows.clear();
    starved.clear();
    n_tokens = n_rows = 0;
    load = {};
    seconds = 0;
  }
};

// Fills plan.rows from its shares.
void list_rows(StepPlan& plan);

}  // namespace ibid
