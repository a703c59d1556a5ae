#include "engine/schedule/new_blocks.h"

#include <algorithm>
#include <utility>

#include "engine/state/sequence.h"

namespace ibid {

std::span<const BlockId> NewBlocks::blocks_of(const Share& share) const {
  const Sequence& s = *share.sequence;
  const auto begin = static_cast<size_t>(s.place.n_rows() / block_len_);
  const auto end = static_cast<size_t>((s.place.n_rows() + share.n_tokens - 1) / block_len_) + 1;
  if (s.place.blocks().size() < end) return {};
  return std::span<const BlockId>(s.place.blocks()).subspan(begin, end - begin);
}

int32_t NewBlocks::n_positions(const Share& share) const {
  if (n_new_ == 0) return 0;
  const auto n = std::ranges::count_if(blocks_of(share), [this](BlockId block) { return has(block); });
  return static_cast<int32_t>(n) * block_len_;
}

bool NewBlocks::write(BlockId block) {
  if (!has(block)) return false;
  is_new_[static_cast<size_t>(raw(block))] = false;
  --n_new_;
  return true;
}

void NewBlocks::write(StepPlan& plan) {
  if (n_new_ == 0) return;
  for (const BlockCopy& copy : plan.copies) {
    if (copy.to_tier == Tier::kDevice) write(copy.to);
  }
  for (Share& share : plan.shares) {
    for (const BlockId block : share.sequence->place.kept_blocks()) write(block);
    const int32_t n = n_positions(share);
    plan.load.n_new_positions += n - std::exchange(share.n_new_positions, n);
    if (n == 0) continue;
    for (const BlockId block : blocks_of(share)) write(block);
  }
}

}  // namespace ibid
