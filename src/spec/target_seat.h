// TargetSeat: lets a proposer run the target itself between two steps: compute tokens after a running sequence, in
// blocks that the sequence could get anyway, and leave no trace. The results belong to no sequence: they lie after the
// sequence's computed positions, are never published, and the following step overwrites those that it reads.
//
// A loan takes only free blocks. It evicts nothing, copies nothing and takes no block from another sequence. When all
// loans have been returned, last one first, the pool is as before, including its order, so scheduling, block assignment
// and recordings are the same as without the loan.
//
// One thread, the engine's, between steps. The engine outlives the seat.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "cache/block_cache.h"
#include "worker/worker.h"

namespace ibid {

class TargetSeat {
 public:
  TargetSeat(Worker& worker, BlockCache& cache, int32_t max_sequences, int32_t max_rows)
      : worker_(worker), cache_(cache), max_sequences_(max_sequences), max_rows_(max_rows) {}

  struct Loan {
    BlockTable* blocks = nullptr;
    size_t n_own = 0;       // blocks of the sequence itself
    int32_t n_written = 0;  // positions computed of the sequence
    int32_t end = 0;        // positions [n_written, end) may be written; none where they are equal
  };
  // Lends at most n_wanted positions after the n_written computed positions of a sequence on these blocks. Lends none
  // if the block to be written is shared, or if the target has recurrent layers. Throws std::bad_alloc with nothing
  // lent.
  Loan lend(BlockTable& blocks, int32_t n_written, int32_t n_wanted);
  void take_back(const Loan& loan);

  // Computes the batch synchronously; its rows [R, V] are valid until the next step or run().
  std::span<const float> run(const ForwardBatch& batch);

  const ModelFacts& facts() const { return worker_.facts(); }
  int32_t block_len() const { return cache_.block_len(); }
  int32_t max_sequences() const { return max_sequences_; }  // sequences of a batch, each with a row
  int32_t max_rows() const { return max_rows_; }            // rows of a batch, one token each
  ThreadTeam& team() const { return worker_.stream().host(); }

 private:
  Worker& worker_;
  BlockCache& cache_;
  int32_t max_sequences_, max_rows_;
  std::vector<BlockCopy> copies_;  // always empty
};

}  // namespace ibid
