// BlockPool: who refers to which block of one tier, and which block is given away next. It counts; the bytes live
// elsewhere. A block is in exactly one state:
//
//   in use       n_references > 0; belongs to one or more tables
//   in transfer  no references, but a copy that is planned reads or writes it
//   cached       neither, but it holds a prefix (a node of the tree names it) and may be found again
//   free         nothing worth keeping
//
// Free and cached blocks stand in a list in eviction order: free ones in front, then the cached ones, least recently
// released first. So "evict" is "take the front", and free + cached + in transfer + in use == total by construction.
// Cached blocks that nothing can go on from (set_goes_first) stand between the two, also least recently released first.
// All operations are O(1). One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "cache/tier.h"

namespace ibid {

class BlockPool {
 public:
  explicit BlockPool(int32_t n_blocks);  // may be 0: a tier that does not exist

  int32_t n_total() const { return n_total_; }
  int32_t n_free() const { return n_total_ - n_cached_ - n_in_transfer_ - n_in_use_; }
  int32_t n_cached() const { return n_cached_; }
  int32_t n_in_transfer() const { return n_in_transfer_; }
  int32_t n_in_use() const { return n_in_use_; }
  int32_t n_shared() const { return n_shared_; }                // in use with more than one reference
  int32_t n_available() const { return n_free() + n_cached_; }  // what take() can give

  // The block that take() would give; kNone where there is none.
  BlockId front() const { return block_at(entries_[head()].next); }
  // The one after that, of one that it would give; kNone: there is none.
  BlockId following(BlockId block) const { return block_at(entry(block).next); }
  void prefetch(BlockId block) const { __builtin_prefetch(&entry(block)); }
  // Gives the front block with one reference. It must exist and hold no node: the tree lets go of it first.
  BlockId take();
  // One more reference; the block may be in any state (a cached one comes back into use).
  void add_reference(BlockId block);
  // One less. The last one puts the block back into the list: those that hold a node at its end, others in front.
  void drop_reference(BlockId block);
  // A copy that reads or writes the block is planned; it is done. They nest.
  void begin_transfer(BlockId block);
  void end_transfer(BlockId block);

  int32_t n_references(BlockId block) const { return entry(block).n_references; }
  // The node whose bytes the block holds; kNone: none, or it must not be found. Without a node, a block without
  // references is free.
  NodeId node_of(BlockId block) const { return entry(block).node; }
  void set_node(BlockId block, NodeId node);
  // Whether the block, which holds a node, is given away before all cached ones of which this is not set. At first it
  // is not, and so for each other node.
  void set_goes_first(BlockId block, bool goes_first);
  bool goes_first(BlockId block) const { return entry(block).goes_first; }

  // Recounts everything; CHECKs on a difference. For tests and debug builds.
  void self_check() const;

 private:
  struct Entry {
    int32_t n_references = 0;
    int32_t n_transfers = 0;
    NodeId node = NodeId::kNone;
    bool goes_first = false;
    int32_t previous = 0;  // in the list while neither referred to nor in transfer
    int32_t next = 0;
    bool is_listed() const { return n_references == 0 && n_transfers == 0; }
    bool holds_node() const { return node != NodeId::kNone; }
  };
  // Past the blocks stand the list's ends, and the entry before which those that go first end.
  size_t head() const { return static_cast<size_t>(n_total_); }
  int32_t middle() const { return n_total_ + 1; }
  BlockId block_at(int32_t i) const {
    if (i == middle()) i = entries_[static_cast<size_t>(i)].next;
    return i == n_total_ ? BlockId::kNone : BlockId{i};
  }
  const Entry& entry(BlockId block) const;
  Entry& entry(BlockId block) { return const_cast<Entry&>(static_cast<const BlockPool*>(this)->entry(block)); }
  void link_between(int32_t block, int32_t previous, int32_t next);
  void link(int32_t block, const Entry& entry);
  void unlink(int32_t block);
  void leave_list(BlockId block);
  void join_list(BlockId block);

  int32_t n_total_;
  int32_t n_cached_ = 0;
  int32_t n_in_transfer_ = 0;
  int32_t n_in_use_ = 0;
  int32_t n_shared_ = 0;
  std::vector<Entry> entries_;
};

}  // namespace ibid
