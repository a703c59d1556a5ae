#include "cache/block_pool.h"

#include "base/check.h"

namespace ibid {

BlockPool::BlockPool(int32_t n_blocks) : n_total_(n_blocks), entries_(static_cast<size_t>(n_blocks) + 2) {
  CHECK(n_blocks >= 0);
  entries_[head()] = {.previous = n_total_, .next = n_total_};
  link_between(middle(), n_total_, n_total_);
  for (int32_t i = n_blocks; i-- > 0;) link(i, entry(BlockId{i}));
}

const BlockPool::Entry& BlockPool::entry(BlockId block) const {
  CHECK(raw(block) >= 0 && raw(block) < n_total_, "a block id outside the pool");
  return entries_[static_cast<size_t>(raw(block))];
}

void BlockPool::link_between(int32_t block, int32_t previous, int32_t next) {
  Entry& e = entries_[static_cast<size_t>(block)];
  e.previous = previous;
  e.next = next;
  entries_[static_cast<size_t>(previous)].next = block;
  entries_[static_cast<size_t>(next)].previous = block;
}
// Free ones to the front, cached ones to the end of their part.
void BlockPool::link(int32_t block, const Entry& e) {
  const int32_t next = !e.holds_node() ? entries_[head()].next : e.goes_first ? middle() : n_total_;
  link_between(block, entries_[static_cast<size_t>(next)].previous, next);
}

void BlockPool::unlink(int32_t block) {
  const Entry& e = entries_[static_cast<size_t>(block)];
  entries_[static_cast<size_t>(e.previous)].next = e.next;
  entries_[static_cast<size_t>(e.next)].previous = e.previous;
}

// Takes the block out of its list's counts and links, or puts it back by its references and transfers.
void BlockPool::leave_list(BlockId block) {
  n_cached_ -= entry(block).holds_node();
  unlink(raw(block));
}
void BlockPool::join_list(BlockId block) {
  n_cached_ += entry(block).holds_node();
  link(raw(block), entry(block));
}

BlockId BlockPool::take() {
  const BlockId block = front();
  CHECK(block != BlockId::kNone, "take() from a pool without an available block");
  CHECK(!entry(block).holds_node(), "take() of a block that the prefix tree still knows");
  add_reference(block);
  return block;
}

void BlockPool::add_reference(BlockId block) {
  Entry& e = entry(block);
  if (e.n_references == 0) {
    if (e.n_transfers == 0) leave_list(block);
    n_in_transfer_ -= e.n_transfers > 0;
    ++n_in_use_;
  }
  if (e.n_references == 1) ++n_shared_;
  ++e.n_references;
}

void BlockPool::drop_reference(BlockId block) {
  Entry& e = entry(block);
  CHECK(e.n_references > 0, "a block was released twice");
  --e.n_references;
  if (e.n_references == 1) --n_shared_;
  if (e.n_references > 0) return;
  --n_in_use_;
  n_in_transfer_ += e.n_transfers > 0;
  if (e.n_transfers == 0) join_list(block);
}

void BlockPool::begin_transfer(BlockId block) {
  Entry& e = entry(block);
  if (e.is_listed()) leave_list(block);
  n_in_transfer_ += e.n_transfers == 0 && e.n_references == 0;
  ++e.n_transfers;
}

void BlockPool::end_transfer(BlockId block) {
  Entry& e = entry(block);
  CHECK(e.n_transfers > 0, "a transfer ended twice");
  --e.n_transfers;
  if (e.n_transfers > 0 || e.n_references > 0) return;
  --n_in_transfer_;
  join_list(block);
}

void BlockPool::set_node(BlockId block, NodeId node) {
  Entry& e = entry(block);
  if (e.is_listed()) leave_list(block);
  e.node = node;
  e.goes_first = false;
  if (e.is_listed()) join_list(block);
}

void BlockPool::set_goes_first(BlockId block, bool goes_first) {
  Entry& e = entry(block);
  CHECK(e.holds_node(), "a free block goes first anyway");
  if (e.goes_first == goes_first) return;
  if (e.is_listed()) leave_list(block);
  e.goes_first = goes_first;
  if (e.is_listed()) join_list(block);
}

void BlockPool::self_check() const {
  int32_t cached = 0, in_use = 0, shared = 0, in_transfer = 0, available = 0;
  for (int32_t i = 0; i < n_total_; ++i) {
    const Entry& e = entries_[static_cast<size_t>(i)];
    CHECK(e.n_references >= 0 && e.n_transfers >= 0);
    in_use += e.n_references > 0;
    shared += e.n_references > 1;
    in_transfer += e.n_references == 0 && e.n_transfers > 0;
    cached += e.is_listed() && e.holds_node();
  }
  CHECK(cached == n_cached_ && in_use == n_in_use_ && shared == n_shared_ && in_transfer == n_in_transfer_,
        "the pool's counts are wrong");
  bool seen_cached = false, is_after_middle = false;
  for (int32_t i = entries_[head()].next; i != n_total_; i = entries_[static_cast<size_t>(i)].next) {
    if (i == middle()) {
      is_after_middle = true;
      continue;
    }
    const Entry& e = entries_[static_cast<size_t>(i)];
    CHECK(e.is_listed(), "a block in use or in transfer stands in the free list");
    CHECK(!(seen_cached && !e.holds_node()), "a free block stands after a cached one");
    CHECK(!e.holds_node() || e.goes_first != is_after_middle, "a cached block stands in the wrong part of the list");
    CHECK(entries_[static_cast<size_t>(e.next)].previous == i, "the free list is torn");
    seen_cached |= e.holds_node();
    CHECK(++available <= n_total_);
  }
  CHECK(available + n_in_transfer_ + n_in_use_ == n_total_, "free + cached + in transfer + in use != total");
}

}  // namespace ibid
