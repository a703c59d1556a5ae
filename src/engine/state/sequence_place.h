// SequencePlace: where a sequence lies. The blocks and states that it refers to, and how far they are computed:
//
//   0          n_published() * B     n_computed()        the sequence's tokens
//   | shared with the tree | its own, written | to be computed |
//   |<------------------- blocks(), with room after for what a plan computes ------------>|
//
// Of a sequence from which keys and values were evicted (engine/state/kv_eviction.h) blocks() has the rows that are
// left, n_rows() = n_computed() - n_evicted(): token i, from n_computed() on, goes to row i - n_evicted(). Such blocks
// hold no prefix, and are never published.
//
// Only the methods change it. Between two of them
//   - n_published() * B <= n_rows(), n_computed() <= tokens of the sequence, and blocks() covers rows [0, n_rows());
//   - of a model with recurrent layers, states() has the state after n_computed() tokens, where that is not 0: whatever
//     falls back asks BlockCache::resume_point(). What a disk brings has its state last (schedule/disk_tier.h);
//   - each block and state of the three tables is one reference in `cache`, which is the same one in all calls.
//   - kept_blocks() is empty, but in a step after which rows are evicted.
// `tokens` are those of the sequence, all of them; positions and numbers of tokens count evicted ones. Methods that add
// blocks throw std::bad_alloc as BlockCache does, with the place unchanged. One thread, the engine's.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "cache/block_cache.h"
#include "cache/durable_key.h"

namespace ibid {

// How far a sequence's blocks are known to a store that outlives the process.
struct DurableChain {
  int32_t n_blocks = 0;  // the first ones
  DurableKey last = {};  // of the last of them
  int64_t use = 0;       // DurableIndex::next_use()
};

class SequencePlace {
 public:
  SequencePlace() = default;
  // On blocks and states that the caller keeps, of a step that no request has made.
  SequencePlace(BlockTable blocks, int32_t n_computed, StateTable states = {}, StateTable next_states = {})
      : blocks_(std::move(blocks)),
        n_computed_(n_computed),
        states_(std::move(states)),
        next_states_(std::move(next_states)) {}

  const BlockTable& blocks() const { return blocks_; }
  bool has_blocks() const { return !blocks_.empty(); }
  int32_t n_computed() const { return n_computed_; }    // tokens whose keys and values lie in the cache
  int32_t n_published() const { return n_published_; }  // blocks that the prefix tree knows, the first ones
  int32_t n_evicted() const { return n_evicted_; }      // tokens whose rows are gone
  int32_t n_rows() const { return n_computed_ - n_evicted_; }
  const BlockTable& kept_blocks() const { return kept_blocks_; }  // where the step puts the rows that it leaves
  ScopeId scope() const { return scope_; }
  const StateTable& states() const { return states_; }  // it goes on from that after n_computed() tokens
  // Those that its share of the step writes; after the i-th draft is after n_tokens() + i + 1. Between steps at most a
  // spare one.
  const StateTable& next_states() const { return next_states_; }
  const DurableChain& durable() const { return durable_; }
  // For a proposer that computes with the model itself (spec/target_seat.h): what it adds it takes away before the next
  // step is planned.
  BlockTable& table_to_lend() { return blocks_; }

  // ---- the tree's scope; held for it until leave()
  void enter(ScopeId scope) { scope_ = scope; }
  void leave(PrefixTree& tree) { tree.let_go(std::exchange(scope_, ScopeId::kNone)); }

  // ---- found, shared, lost
  // Takes what is cached of these first tokens, as far as one can go on from. It must have no blocks.
  void match(BlockCache& cache, std::span<const TokenId> tokens, std::vector<BlockCopy>& copies);
  // The same of whole blocks alone: one can go on after them where it gets a state too (reserve_own_state).
  void match_blocks(BlockCache& cache, std::span<const TokenId> tokens, std::vector<BlockCopy>& copies);
  // Shares what `from` has of the first n_tokens tokens, as far as one can go on from. It must have no blocks.
  void fork(BlockCache& cache, const SequencePlace& from, int32_t n_tokens);
  // Its first blocks are those of `from`, in stores too.
  void take_chain(const SequencePlace& from) { durable_ = from.durable_; }
  // Falls back to a position that begins a block; not where rows are evicted, which no prefix brings back.
  void rewind_to_block(BlockCache& cache);
  // Gives back all blocks and states.
  void drop(BlockCache& cache);

  // ---- room
  // Makes positions [n_computed(), n_tokens) writable. False: there is no room; then nothing changed.
  bool reserve(BlockCache& cache, int32_t n_tokens, std::vector<BlockCopy>& copies) {
    return cache.reserve(blocks_, n_rows(), n_tokens - n_evicted_, copies);
  }
  // Blocks for the n_rows rows that the step leaves. False: there is no room; then nothing changed.
  bool reserve_kept(BlockCache& cache, int32_t n_rows, std::vector<BlockCopy>& copies) {
    return cache.reserve(kept_blocks_, 0, n_rows, copies);
  }
  // How many blocks reserve() would take.
  int32_t n_blocks_missing(const BlockCache& cache, int32_t n_tokens) const {
    return cache.n_blocks_missing(blocks_, n_rows(), n_tokens - n_evicted_);
  }
  // A state to write after n_tokens tokens; false: there is none.
  bool reserve_state(BlockCache& cache, int32_t n_tokens) {
    return cache.reserve_state(states_, n_computed_, n_tokens, next_states_);
  }
  // The same, which never takes the one that the sequence goes on from.
  bool reserve_state_beside(BlockCache& cache, int32_t n_tokens) {
    return cache.reserve_state({}, 0, n_tokens, next_states_);
  }
  // A state of its own after n_tokens tokens, which the caller fills; false: there is none.
  bool reserve_own_state(BlockCache& cache, int32_t n_tokens) { return cache.reserve_state({}, 0, n_tokens, states_); }
  // Sees to it that the next reserve_state() finds one; false: there is none.
  bool reserve_spare_state(BlockCache& cache) { return cache.reserve_spare_state(states_, n_computed_, next_states_); }
  // Gives back the blocks after these positions.
  void truncate(BlockCache& cache, int32_t n_tokens);
  // Gives back those that hold positions before n_tokens only (BlockCache::release_before).
  void release_before(BlockCache& cache, int32_t n_tokens) { cache.release_before(n_tokens, n_published_, blocks_); }

  // ---- computed
  // The states that the step wrote are the sequence's from now on, and no others.
  void take_states(BlockCache& cache);
  // So many tokens more are computed, in blocks that it has.
  void advance(int32_t n_tokens) { n_computed_ += n_tokens; }
  // The step has put the n_rows rows that remain into kept_blocks(): the others are evicted.
  void take_kept(BlockCache& cache, int32_t n_rows);
  // The first n_tokens tokens are computed, accepted drafts among them; as far as one can go on from.
  void resume_at(const BlockCache& cache, int32_t n_tokens);
  // Of the states after drafts of a sequence of n_tokens tokens: that of the i-th accepted one is after n_tokens + 1 +
  // i tokens from now on, those of others are after none that it will have.
  void keep_drafted_states(int32_t n_tokens, std::span<const int32_t> accepted);
  // Drops all states but that which it goes on from; but those of after n_computed() tokens or more.
  void keep_state(BlockCache& cache) { cache.keep_state(states_, n_computed_); }
  void drop_states_before(BlockCache& cache) { cache.drop_states_before(states_, n_computed_); }

  // ---- left for others
  void publish(BlockCache& cache, std::span<const TokenId> tokens);
  void publish_tail(BlockCache& cache, std::span<const TokenId> tokens) const;
  // Lets the tree hold its state after n_tokens tokens, if it has one.
  void hold_state(BlockCache& cache, std::span<const TokenId> tokens, int32_t n_tokens) const;
  // All that it has, to its last computed token.
  void leave_all(BlockCache& cache, std::span<const TokenId> tokens) const;
  // The first block is known to a store, under this key, used then; or the next block after those that are.
  void begin_chain(const DurableKey& of_scope, int64_t use) {
    durable_ = {.n_blocks = 0, .last = of_scope, .use = use};
  }
  void extend_chain(const DurableKey& key) { durable_.last = key, ++durable_.n_blocks; }

 private:
  BlockTable blocks_;
  int32_t n_computed_ = 0;
  int32_t n_published_ = 0;
  int32_t n_evicted_ = 0;
  ScopeId scope_ = ScopeId::kNone;
  StateTable states_, next_states_;
  DurableChain durable_;
  BlockTable kept_blocks_;
};

}  // namespace ibid
