#include "sim/cache_oracle.h"

#include <algorithm>

namespace ibid::sim {

CacheOracle::CacheOracle(const Workload& workload, int32_t n_blocks, int32_t context_len, Evict rule)
    : workload_(workload), block_len_(workload.part_len), n_free_(n_blocks), context_len_(context_len), rule_(rule) {
  std::map<std::pair<int32_t, int32_t>, int32_t> ids;  // (parent, part)
  for (const Arrival& a : workload.arrivals) {
    std::vector<int32_t>& path = paths_.emplace_back();
    for (const int32_t part : a.parts) {
      const int32_t parent = path.empty() ? -1 : path.back();
      const auto [it, is_new] = ids.emplace(std::pair{parent, part}, static_cast<int32_t>(nodes_.size()));
      if (is_new) nodes_.push_back({.parent = parent});
      path.push_back(it->second);
    }
  }
  for (size_t i = paths_.size(); i-- > 0;) {
    for (const int32_t node : paths_[i]) nodes_[static_cast<size_t>(node)].wanted_at.push_back(static_cast<int32_t>(i));
  }
}

CacheOracle::Key CacheOracle::key_of(const Node& n) const {
  switch (rule_) {
    case Evict::kFifo:
      return {n.came, n.released};
    case Evict::kLru:
      return {0, n.released};
    case Evict::kLfu:
      return {n.n_uses, n.released};
    case Evict::kHitOnce:
      return {n.n_uses > 1, n.released};
    case Evict::kBelady:
      return {n.wanted_at.empty() ? INT64_MIN : -n.wanted_at.back(), n.released};
  }
  return {};
}

void CacheOracle::list(int32_t node) {
  const Node& n = nodes_[static_cast<size_t>(node)];
  if (n.len > 0 && n.n_pins == 0 && n.n_children == 0) leaves_.insert({key_of(n), node});
}
void CacheOracle::unlist(int32_t node) { leaves_.erase({key_of(nodes_[static_cast<size_t>(node)]), node}); }

void CacheOracle::pin(int32_t node) {
  unlist(node);
  ++nodes_[static_cast<size_t>(node)].n_pins;
}
void CacheOracle::unpin(int32_t node) {
  Node& n = nodes_[static_cast<size_t>(node)];
  --n.n_pins;
  n.released = ++tick_;
  list(node);
}

void CacheOracle::take() {
  if (n_free_ == 0) forget(leaves_.begin()->second);
  --n_free_;
}

void CacheOracle::forget(int32_t node) {
  unlist(node);
  Node& n = nodes_[static_cast<size_t>(node)];
  n.len = 0;
  n.n_uses = 0;
  ++n_free_;
  if (n.parent < 0) return;
  --nodes_[static_cast<size_t>(n.parent)].n_children;
  list(n.parent);
}

int32_t CacheOracle::ask() {
  const std::vector<int32_t>& path = paths_[next_];
  const int32_t prompt_len = workload_.arrivals[next_].prompt_len;
  const auto at = [&](size_t i) -> Node& { return nodes_[static_cast<size_t>(path[i])]; };
  ++next_;
  // The last token is always computed: its row is wanted.
  int32_t found = 0;
  size_t n_held = 0;
  for (; found + block_len_ < prompt_len && at(n_held).len == block_len_; found += block_len_) ++n_held;
  const size_t n_whole = n_held;
  const int32_t n_partial = n_held < path.size() ? std::min(at(n_held).len, prompt_len - 1 - found) : 0;
  if (n_partial > 0) ++n_held;
  found += n_partial;
  for (size_t i = 0; i < n_held; ++i) pin(path[i]);
  // Room for all tokens and one more; a block that is found in part is copied where something is known after it.
  const int32_t n_tokens = std::min(prompt_len + 1, std::max(prompt_len, context_len_));
  const auto n_blocks = static_cast<size_t>((n_tokens + block_len_ - 1) / block_len_);
  const bool is_copied = n_partial > 0 && n_partial < at(n_whole).len;
  if (is_copied) {
    take();
    unpin(path[n_whole]);
    n_held = n_whole;
  }
  int32_t n_own = is_copied;
  for (size_t i = n_held + static_cast<size_t>(is_copied); i < n_blocks; ++i) take(), ++n_own;
  // All is computed: what is new becomes known, what is known already takes the place of one's own.
  for (size_t i = n_held; i < path.size(); ++i) {
    Node& n = at(i);
    const int32_t len = std::min(block_len_, prompt_len - static_cast<int32_t>(i) * block_len_);
    if (n.len >= len) {
      if (len == block_len_) ++n_free_, --n_own, pin(path[i]), n_held = i + 1;
      continue;
    }
    if (n.len > 0) forget(path[i]);  // a shorter tail is contained in this one
    n.len = len;
    n.came = ++tick_;
    if (n.parent >= 0) unlist(n.parent), ++nodes_[static_cast<size_t>(n.parent)].n_children;
    ++n.n_pins;
    --n_own;
    n_held = i + 1;
  }
  // A block that was found in part and not copied grows in place.
  if (n_partial > 0 && !is_copied)
    at(n_whole).len =
        std::max(at(n_whole).len, std::min(block_len_, prompt_len - static_cast<int32_t>(n_whole) * block_len_));
  for (size_t i = 0; i < path.size(); ++i) {
    Node& n = at(i);
    if (n.n_pins == 0) unlist(path[i]);
    ++n.n_uses;
    n.wanted_at.pop_back();
    if (n.n_pins == 0) list(path[i]);
  }
  n_free_ += n_own;
  for (size_t i = n_held; i-- > 0;) unpin(path[i]);
  return found;
}

}  // namespace ibid::sim
