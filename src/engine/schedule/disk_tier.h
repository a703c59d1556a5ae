// DiskTier: prefixes that outlive the process, from the engine's side. Whole blocks are written when they are
// published, and found again by their keys (cache/durable_key.h) where the tree knows no more.
//
// A sequence that waits for blocks is out of the queue (SequenceState::kFetching) and holds those that have come, as if
// it had computed them: n_computed grows, its blocks are published. When all are here, or one cannot be read, or it has
// taken as long as computing them would, it goes back into the queue and goes on from what it has. So what is fetched
// changes when something is computed and never what.
//
//   settle()   at the start of a step, the one place where anything comes in: blocks arrive, fetches end, more is asked
//   begin()    while a step is planned, of who would be admitted next: fetch for it, or not
//   save()     while a step is settled, of who has published: copied out, written later
//
// Fetching is chosen where it is expected to be faster than computing, by what both have cost so far (step_cost.h).
// The engine's thread; nothing here waits for the disk but wait(), which an engine without other work calls.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cache/block_cache.h"
#include "cache/durable_index.h"
#include "engine/state/engine_options.h"
#include "engine/state/sequence.h"
#include "engine/state/step_cost.h"
#include "worker/durable_store.h"
#include "worker/worker.h"

namespace ibid {

// How the bytes of a block lie, as part of keys.
std::string layout_of(const KvStore& kv);

class DiskTier {
 public:
  // `cache`, `worker` and `computing` outlive it. Forgets what was found beyond max_bytes, oldest first.
  DiskTier(BlockCache& cache, Worker& worker, const StepCost& computing, std::unique_ptr<DurableStore> store,
           int64_t max_bytes);

  // Takes in what the store has done. Those whose fetch is over are in ended() until the next call, with the blocks
  // that they have. n_kept_free: blocks that those who run may need.
  void settle(double now, int32_t n_kept_free);
  const std::vector<Sequence*>& ended() const { return ended_; }
  // Of a waiting sequence that holds no blocks. True: it waits for blocks from now on, and must be in no queue. Throws
  // std::bad_alloc as BlockCache::match() does, and then it does not.
  bool begin(Sequence& sequence, int32_t n_kept_free, std::vector<BlockCopy>& copies);
  // Ends the fetch of this sequence; nothing if there is none.
  void forget(const Sequence& sequence);
  // Ends the youngest fetch that holds blocks and returns its sequence; null: there is none.
  Sequence* give_way();

  // Writes what is published of the sequence and not there yet, as far as there is room; the rest next time.
  void save(Sequence& sequence);
  // It has ended; what was not written by then is not.
  void leave(const Sequence& sequence);

  bool is_fetching() const { return !fetches_.empty(); }
  void wait(double seconds) { store_->wait(seconds); }
  void tell(DiskStats& stats) const;
  const DurableIndex& index() const { return index_; }

 private:
  struct Fetch {
    Sequence* sequence;
    int64_t ticket;
    int32_t n_wanted;    // blocks of its sequence, the first ones
    int32_t n_asked;     // of those; so many have been asked for, or were there
    DurableKey asked;    // the key of the last of them
    DurableKey arrived;  // the key of the last block that it has
    int64_t use;
    double until;
    int64_t following;  // the ticket of another fetch that brings the same blocks; 0: none
    bool is_over = false;
  };

  DurableKey key_of(ScopeId scope) const;
  std::span<const TokenId> tokens_of(const Sequence& sequence, int32_t i_block) const;
  int32_t n_there(const Sequence& sequence, int32_t n_known, int32_t n_blocks, DurableKey key) const;
  double seconds_to_compute(int32_t n_known, int32_t n_blocks) const;
  bool is_worth(int32_t n_blocks, double computing);
  bool has_room(const Sequence& sequence, int32_t n_kept_free) const;
  const Fetch* same_fetch(const Sequence& sequence, int32_t n_known, const DurableKey& key) const;
  void take(const DurableStore::Done& done, int32_t n_kept_free);
  bool arrive(Fetch& fetch, const DurableStore::Done& done, int32_t n_kept_free);
  bool import(Sequence& sequence, std::span<std::byte> image);
  void count(const DurableStore::Done& done);
  bool is_over(const Fetch& fetch) const;
  void end_fetches();
  void ask();
  bool ask_one(Fetch& fetch);
  bool write(const Sequence& sequence, int32_t i_block, const DurableKey& key, const DurableKey& parent);

  BlockCache& cache_;
  Worker& worker_;
  const StepCost& computing_;
  std::unique_ptr<DurableStore> store_;
  BlockFormat format_;
  std::string layout_;   // of the blocks, for keys
  int64_t image_bytes_;  // that each counts
  DurableIndex index_;
  double bytes_per_second_;  // of reads, each for itself, smoothed
  DiskStats stats_;
  double now_ = 0;
  int64_t next_ticket_ = 1;
  std::vector<Fetch> fetches_;  // oldest first
  std::vector<Sequence*> ended_;
  std::vector<DurableStore::Done> done_;
  std::vector<BlockCopy> copies_;
  std::vector<NodeId> path_;
};

}  // namespace ibid
