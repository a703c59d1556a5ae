// TargetSeat: what a proposer may do with the target itself between two steps: compute tokens after a running sequence,
// on places that the sequence could be given anyway, and leave no trace of it. What is computed there is no sequence's:
// it lies after what is computed of the sequence, is never published, and the step that follows writes over what it
// reads of it.
//
// A loan takes free blocks alone. It evicts nothing, copies nothing and takes from nobody; when all loans have been
// given back, last one first, the pool is as it was, its order too: who runs next, on which blocks, and what a record
// says of it is what it would have been.
//
// One thread, the engine's, between steps. The engine outlives it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "cache/block_cache.h"
#include "worker/worker.h"

namespace ibid {

class TargetSeat {
 public:
  TargetSeat(Worker& worker, BlockCache& cache, int32_t max_texts, int32_t max_rows)
      : worker_(worker), cache_(cache), max_texts_(max_texts), max_rows_(max_rows) {}

  struct Loan {
    BlockTable* blocks = nullptr;
    size_t n_own = 0;       // blocks of the sequence itself
    int32_t n_written = 0;  // of its positions
    int32_t end = 0;        // positions [n_written, end) may be written; none where they are equal
  };
  // Of at most n_wanted positions after the n_written that are computed of a sequence on these blocks. None where
  // others can see the block that it would write to. Throws std::bad_alloc with nothing lent.
  Loan lend(BlockTable& blocks, int32_t n_written, int32_t n_wanted);
  void take_back(const Loan& loan);

  // Computes the batch, at once; its rows [R, V] are valid until the next step or run().
  std::span<const float> run(const ForwardBatch& batch);

  const ModelFacts& facts() const { return worker_.facts(); }
  int32_t block_len() const { return cache_.block_len(); }
  int32_t max_texts() const { return max_texts_; }  // of a batch, each with a row
  int32_t max_rows() const { return max_rows_; }    // of a batch, each of a token
  ThreadTeam& team() const { return worker_.stream().host(); }

 private:
  Worker& worker_;
  BlockCache& cache_;
  int32_t max_texts_, max_rows_;
  std::vector<BlockCopy> copies_;  // of a loan: none
};

}  // namespace ibid
