#include "text/tokenizer/merge_table.h"

#include <span>

namespace ibid {

std::optional<MergeTable::Fault> MergeTable::look_up() {
  std::span<Waiting> block(waiting_.data(), n_waiting_);
  for (Waiting& w : block) {
    w.tail = w.right;
    if (!prefix_.empty() && w.tail.starts_with(prefix_)) w.tail.remove_prefix(prefix_.size());
    w.left_hash = TokenMap::hash(w.left);
    w.right_hash = TokenMap::hash(w.right);
    uint64_t tail_hash = w.tail.size() == w.right.size() ? w.right_hash : TokenMap::hash(w.tail);
    w.both_hash = TokenMap::join(w.left_hash, tail_hash, w.tail.size());
    map_.prefetch_slot(w.left_hash);
    map_.prefetch_slot(w.right_hash);
    map_.prefetch_slot(w.both_hash);
  }
  for (const Waiting& w : block) {
    map_.prefetch_token(w.left_hash);
    map_.prefetch_token(w.right_hash);
    map_.prefetch_token(w.both_hash);
  }
  for (const Waiting& w : block) {
    auto fault = [&](const char* why) { return Fault{merges_.size(), w.left, w.right, why}; };
    int32_t left = map_.find(w.left, w.left_hash), right = map_.find(w.right, w.right_hash);
    if (left < 0 || right < 0) return fault("names a token that is not in the vocabulary");
    int32_t both = map_.find_joined(w.left, w.tail, w.both_hash);
    if (both < 0) return fault("makes a token that is not in the vocabulary");
    merges_.push_back({left, right, static_cast<int32_t>(merges_.size()), both});
  }
  n_waiting_ = 0;
  return std::nullopt;
}

}  // namespace ibid
