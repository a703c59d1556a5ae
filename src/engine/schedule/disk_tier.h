// DiskTier: prefixes that outlive the process, from the engine's side. Whole blocks are written when they are
// published, and found again by their keys (cache/durable_key.h) where the tree knows no more.
//
// Of a model with recurrent layers, a snapshot of a sequence's state (cache/state_pool.h) is written when it is taken,
// beside the blocks before it, with the keys and values of the block that it lies in. A sequence goes on from there
// alone, so that is fetched last, and what came without it is given back.
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

#include <array>
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

// How the bytes of a block lie, and those of a state, as part of keys.
std::string layout_of(const KvStore& kv, const ModelFacts& facts);

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

  // Writes what is published of the sequence and not there yet, as far as there is room; the rest next time. Only while
  // a step is settled: then its blocks are written and no copy to them is planned.
  void save(Sequence& sequence);
  // It has ended; what was not written by then is not.
  void leave(const Sequence& sequence);

  bool is_fetching() const { return !fetches_.empty(); }
  void wait(double seconds) { store_->wait(seconds); }
  void tell(DiskStats& stats) const;
  const DurableIndex& index() const { return index_; }

 private:
  static constexpr int64_t kFar = 1'000'000'000;  // the store updates the age of a file that was this much older
  struct Fetch {
    Sequence* sequence = nullptr;
    int64_t ticket = 0;
    int32_t n_wanted = 0;     // whole blocks of its sequence, the first ones
    int32_t n_asked = 0;      // of those; so many have been asked for, or were there
    int32_t n_state = 0;      // tokens after which it gets a state, once all blocks are there; 0: none
    DurableKey asked = {};    // the key of the last of them
    DurableKey arrived = {};  // the key of the last block that it has
    int64_t use = 0;
    double until = 0;
    int64_t following = 0;  // the ticket of another fetch that brings the same blocks; 0: none
    bool has_asked_state = false;
    bool is_over = false;
  };

  DurableKey key_of(ScopeId scope) const;
  std::span<const TokenId> tokens_of(const Sequence& sequence, int32_t i_block) const;
  std::span<const TokenId> tokens_after(const Sequence& sequence, int32_t n_blocks, int32_t n_tokens) const;
  void list_keys(const Sequence& sequence, int32_t n_known, int32_t n_blocks);
  int32_t n_until_state(const Sequence& sequence, int32_t n_resumable) const;
  bool has_state(const Sequence& sequence, int32_t n_tokens) const;
  double seconds_to_compute(int32_t n_known, int32_t n_tokens) const;
  bool is_worth(int64_t bytes, double computing);
  bool has_room(const Sequence& sequence, int32_t n_kept_free) const;
  const Fetch* same_fetch(const Sequence& sequence, int32_t n_known, const DurableKey& key) const;
  void wait_for(Sequence& sequence, const Fetch& fetch);
  bool is_complete(const Fetch& fetch) const;
  void take(const DurableStore::Done& done, int32_t n_kept_free);
  bool arrive(Fetch& fetch, const DurableStore::Done& done, int32_t n_kept_free);
  bool reserve(Sequence& sequence, int32_t n_tokens, bool has_state);
  bool import(Sequence& sequence, std::span<std::byte> payload);
  bool import_state(Sequence& sequence, int32_t n_tokens, std::span<std::byte> payload);
  void count(const DurableStore::Done& done);
  bool is_over(const Fetch& fetch) const;
  void end_fetches();
  void ask();
  bool ask_one(Fetch& fetch);
  bool save_block(const Sequence& sequence, int32_t i_block, const DurableKey& key, const DurableKey& parent);
  bool save_states(const Sequence& sequence, int32_t i_block, const DurableKey& parent);
  template <typename Fill>
  bool write(ImageKind kind, const DurableKey& key, int64_t age, Fill fill);
  int64_t bytes_of(ImageKind kind) const { return image_bytes_[static_cast<size_t>(kind)]; }

  BlockCache& cache_;
  Worker& worker_;
  const StepCost& computing_;
  std::unique_ptr<DurableStore> store_;
  BlockFormat format_;
  const bool has_states_;
  std::string layout_;                       // of the blocks and states, for keys
  std::array<int64_t, 2> image_bytes_ = {};  // that each counts, by its kind
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
  std::vector<DurableKey> keys_;  // of a sequence: of its scope, then of its first blocks
};

}  // namespace ibid
