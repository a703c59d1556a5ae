// BlockPool: who refers to which block of the KV cache, and which block is given away next. It counts; the bytes live
// elsewhere. A block is in exactly one state:
//
//   in use   n_references > 0; belongs to one or more tables
//   cached   no references, but it holds a published prefix (the tree's mark) and may be found again
//   free     no references and nothing worth keeping
//
// Free and cached blocks stand in one list in eviction order: free ones in front, then the cached ones, least recently
// released first. So "evict" is "take the front", and free + cached + in use == total by construction.
// All operations are O(1). One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/ids.h"

namespace ibid {

class BlockPool {
 public:
  explicit BlockPool(int32_t n_blocks);

  int32_t n_total() const { return n_total_; }
  int32_t n_free() const { return n_total_ - n_cached_ - n_in_use_; }
  int32_t n_cached() const { return n_cached_; }
  int32_t n_in_use() const { return n_in_use_; }
  int32_t n_shared() const { return n_shared_; }                // in use with more than one reference
  int32_t n_available() const { return n_total_ - n_in_use_; }  // free or cached: what take() can give

  // The block that take() would give; kNone when all are in use.
  BlockId front() const { return entries_[head()].next == n_total_ ? BlockId::kNone : BlockId{entries_[head()].next}; }
  // Gives the front block with one reference. It must exist and must no longer be marked: the tree forgets first.
  BlockId take();
  // One more reference; the block may be in any state (a cached one comes back into use).
  void add_reference(BlockId block);
  // One less. The last one puts the block back into the list: marked ones at its end, others in front.
  void drop_reference(BlockId block);

  int32_t n_references(BlockId block) const { return entry(block).n_references; }
  // The mark says that the prefix tree knows the block. Unmarking a block without references makes it free.
  bool is_marked(BlockId block) const { return entry(block).marked; }
  void mark(BlockId block);
  void unmark(BlockId block);

  // Recounts everything; CHECKs on a difference. For tests and debug builds.
  void self_check() const;

 private:
  struct Entry {
    int32_t n_references = 0;
    bool marked = false;
    int32_t previous = 0;  // in the list while n_references == 0
    int32_t next = 0;
  };
  size_t head() const { return static_cast<size_t>(n_total_); }  // the list's sentinel is one entry past the blocks
  const Entry& entry(BlockId block) const;
  Entry& entry(BlockId block) { return const_cast<Entry&>(static_cast<const BlockPool*>(this)->entry(block)); }
  void link_between(int32_t block, int32_t previous, int32_t next);
  void link_front(int32_t block);
  void link_back(int32_t block);
  void unlink(int32_t block);

  int32_t n_total_;
  int32_t n_cached_ = 0;
  int32_t n_in_use_ = 0;
  int32_t n_shared_ = 0;
  std::vector<Entry> entries_;
};

}  // namespace ibid
