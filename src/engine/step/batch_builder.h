// BatchBuilder: turns a plan into the flat arrays that a model reads (kernels/batch_arrays.h). Arrays are sized once
// for the largest step; the batch is a view into them, valid until the next build.
//
// Position t of a sequence lies in slot blocks[t / B] * B + t % B (of one from which rows were evicted: row t -
// n_evicted, which is its place then), and its part of block_table has the blocks of those slots that the step reads or
// writes and no more. Drafts take the slots after the sequence in the order of their list. Where that is no chain, the
// slots are not those of their positions: each draft names its ancestors' (a path), and who takes over drafts moves
// their keys and values to their positions' slots.
#pragma once

#include "engine/state/sequence.h"
#include "engine/state/step_plan.h"
#include "kernels/batch_arrays.h"

namespace ibid {

struct BatchLimits {
  int32_t n_tokens = 0;     // T
  int32_t n_sequences = 0;  // S
  int32_t n_rows = 0;       // R
  int32_t context_len = 0;
  int32_t block_len = 0;                                    // B
  bool keeps_states = false;                                // of a model with recurrent layers
  bool turns_by_axes = false, sees_whole_pictures = false;  // ModelFacts
  bool keeps_blocks = true;  // false: of an encoder, whose batches have no slots and no tables
};

class BatchBuilder {
 public:
  explicit BatchBuilder(const BatchLimits& limits);
  ForwardBatch build(const StepPlan& plan);
  // Of the i-th of a sequence's tokens, drafts after them included.
  int32_t slot_of(const Sequence& sequence, int32_t i) const;

 private:
  void add(const Share& share);
  void add_text(const Share& share);
  void add_picture(const PromptPictures& pictures, const Sequence& sequence, int32_t i, int32_t draft);
  void add_path(const Sequence& sequence, int32_t draft);

  BatchLimits limits_;
  BatchArrays arrays_;
};

}  // namespace ibid
