// A step's work as bytes: what a worker in another process, or on another machine, is sent. One run of bytes, its
// arrays one after another, little-endian, each at a multiple of 4:
//
//   StepHead, BlockCopy[n_copies], StateCopy[n_state_copies], then of the batch, if it has one: tokens[T],
//   positions[T], places[T] (of views), slots[T], query_start[S + 1], kv_len[S], block_start[S + 1],
//   block_table[n_blocks], logit_rows[R], path_start[T + 1] and path_slots[n_path_slots] (where tokens have paths),
//   state_in[S] and state_out[T] (of a model with recurrent layers), token_types[T] (of pairs), adapters[S],
//   KeptRows[n_kept] and kept_blocks (where rows are evicted)
#pragma once

#include <cstddef>
#include <span>

#include "base/result.h"
#include "worker/worker.h"

namespace ibid {

// How many bytes write_step() writes.
size_t step_bytes(const StepWork& work);
// `out` is step_bytes() long and aligned to 4 bytes.
void write_step(const StepWork& work, std::span<std::byte> out);

// What a step may name: another step is refused.
struct StepLimits {
  int32_t n_tokens = 0, n_rows = 0;                     // of the largest step
  int32_t n_blocks = 0, n_host_blocks = 0;              // of the pools
  int32_t n_states = 0, n_host_states = 0;              // of recurrent states
  int32_t n_adapters = 0;                               // slots of adapters
  int32_t vocab_size = 0, context_len = 0, window = 0;  // of the model
};

// The work in these bytes, which stay as they are while it is used. Every index is within `limits` and the arrays are
// as ForwardBatch specifies, so that a worker may run what any sender sent; anything else gives kInvalid. Allocates
// nothing but an error's sentence.
class ReadStep {
 public:
  static Result<ReadStep> read(std::span<const std::byte> bytes, const StepLimits& limits);
  // Valid as long as this and the bytes.
  StepWork work() const {
    StepWork work = work_;
    work.batch = has_batch_ ? &batch_ : nullptr;
    return work;
  }

 private:
  StepWork work_;
  ForwardBatch batch_;
  bool has_batch_ = false;
};

}  // namespace ibid
