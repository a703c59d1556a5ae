#include "engine/state/sequence_place.h"

#include <algorithm>
#include <limits>

namespace ibid {

void SequencePlace::match(BlockCache& cache, std::span<const TokenId> tokens, std::vector<BlockCopy>& copies) {
  n_computed_ = cache.match(scope_, tokens, blocks_, states_, copies);
  n_published_ = n_computed_ / cache.block_len();
}

void SequencePlace::match_blocks(BlockCache& cache, std::span<const TokenId> tokens, std::vector<BlockCopy>& copies) {
  n_computed_ = cache.match_blocks(scope_, tokens, blocks_, copies);
  n_published_ = n_computed_ / cache.block_len();
}

void SequencePlace::fork(BlockCache& cache, const SequencePlace& from, int32_t n_tokens) {
  n_computed_ = n_published_ = n_evicted_ = 0;
  durable_ = {};
  n_computed_ = cache.fork(from.blocks_, from.states_, n_tokens - from.n_evicted_, blocks_, states_) + from.n_evicted_;
  n_evicted_ = from.n_evicted_;
  n_published_ = std::min(from.n_published_, n_computed_ / cache.block_len());
}

void SequencePlace::rewind_to_block(BlockCache& cache) {
  if (n_evicted_ > 0) return;
  n_computed_ = cache.rewind_to_block(blocks_, states_, n_computed_);
  n_published_ = std::min(n_published_, n_computed_ / cache.block_len());
}

void SequencePlace::drop(BlockCache& cache) {
  cache.release(blocks_);
  cache.release(kept_blocks_);
  cache.release(states_);
  cache.release(next_states_);
  n_computed_ = 0;
  n_published_ = 0;
  n_evicted_ = 0;
}

void SequencePlace::truncate(BlockCache& cache, int32_t n_tokens) { cache.truncate(blocks_, n_tokens - n_evicted_); }

void SequencePlace::take_kept(BlockCache& cache, int32_t n_rows) {
  cache.release(blocks_);
  blocks_.swap(kept_blocks_);
  n_evicted_ = n_computed_ - n_rows;
  n_published_ = 0;
}

void SequencePlace::take_states(BlockCache& cache) {
  if (next_states_.empty()) return;  // it has none, or has ended
  cache.release(states_);
  states_.swap(next_states_);
}

void SequencePlace::resume_at(const BlockCache& cache, int32_t n_tokens) {
  const int32_t n_before = n_computed_;
  n_computed_ = cache.resume_point(blocks_, states_, n_tokens);  // any, of a model that may evict
  if (n_computed_ < n_before) n_published_ = std::min(n_published_, n_computed_ / cache.block_len());
}

void SequencePlace::keep_drafted_states(int32_t n_tokens, std::span<const int32_t> accepted) {
  constexpr int32_t kRefused = std::numeric_limits<int32_t>::max();
  for (HeldState& held : states_) {
    if (held.n_tokens <= n_tokens) continue;
    const auto draft = std::ranges::find(accepted, held.n_tokens - n_tokens - 1);
    held.n_tokens = draft == accepted.end() ? kRefused : n_tokens + 1 + static_cast<int32_t>(draft - accepted.begin());
  }
}

void SequencePlace::publish(BlockCache& cache, std::span<const TokenId> tokens) {
  if (n_evicted_ > 0) return;
  n_published_ = cache.publish(scope_, tokens, n_computed_, n_published_, blocks_);
}

void SequencePlace::publish_tail(BlockCache& cache, std::span<const TokenId> tokens) const {
  if (n_evicted_ > 0) return;
  cache.publish_tail(scope_, tokens, n_computed_, n_published_, blocks_);
}

void SequencePlace::hold_state(BlockCache& cache, std::span<const TokenId> tokens, int32_t n_tokens) const {
  const StateId state = state_after(states_, n_tokens);
  if (state != StateId::kNone) cache.hold_state(scope_, tokens, n_tokens, n_published_, blocks_, state);
}

void SequencePlace::leave_all(BlockCache& cache, std::span<const TokenId> tokens) const {
  publish_tail(cache, tokens);
  hold_state(cache, tokens, n_computed_);
}

}  // namespace ibid
