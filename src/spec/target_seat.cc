#include "spec/target_seat.h"

#include <algorithm>

#include "base/check.h"

namespace ibid {

TargetSeat::Loan TargetSeat::lend(BlockTable& blocks, int32_t n_written, int32_t n_wanted) {
  const int64_t len = cache_.block_len();
  const auto n_own = static_cast<int64_t>(blocks.size());
  Loan loan = {.blocks = &blocks, .n_own = blocks.size(), .n_written = n_written, .end = n_written};
  const bool begins_block = n_written >= n_own * len;
  if (!cache_.keeps_blocks() || cache_.states().keeps_states() ||
      (!begins_block && cache_.n_blocks_missing(blocks, n_written, n_written + 1) > 0))
    return loan;
  const int64_t n_free = cache_.pool().n_free();
  const int64_t end = std::min(int64_t{n_written} + n_wanted, (n_own + n_free) * len);
  if (end <= n_written || !cache_.reserve(blocks, n_written, static_cast<int32_t>(end), copies_)) return loan;
  CHECK(copies_.empty(), "a loan of free blocks moves nothing");
  copies_.clear();
  loan.end = static_cast<int32_t>(end);
  return loan;
}

void TargetSeat::take_back(const Loan& loan) {
  cache_.truncate(*loan.blocks, static_cast<int32_t>(loan.n_own) * cache_.block_len());
}

std::span<const float> TargetSeat::run(const ForwardBatch& batch) {
  return worker_.wait(worker_.launch({.batch = &batch})).logits;
}

}  // namespace ibid
