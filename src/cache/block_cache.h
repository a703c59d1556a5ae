// BlockCache: the pool and the tree as one, in terms of block tables. A table is the list of blocks
// after the positions 0, 1, 2 ... of one growing list of tokens: position t lies in table[t / B] at offset t % B.
//
// Blocks are shared by reference and copied before the first write (copy-on-write): a table may write only to blocks
// that it alone refers to, and only after what is published of them. reserve() ensures this and lists the bytes to
// copy. Blocks that a sliding window has passed may be given back early: kNone stands in their place.
//
// A block that is evicted goes down to the next tier that has room, if there is one; what is found there comes up
// again. All copies of a plan, between tiers or within the device, stand in one list: they must be done in its order,
// before anything is written in that step; then transferred() must be called. Until then a lower
// tier's block that receives one, or gives to the device, is in transfer and is not handed out.
//
// A block's way, and who may write to it:
//
//    free --reserve()--> one table's own --publish()--> tables and the tree: written only after what is published,
//     ^                   |                    ^        and only by a table that is alone with it
//     |                   |                    |                     |
//     |<--release() and --+                    +-- match() --+       | the last release()
//     |   truncate()                                         |       v
//     +<---- evicted: forgotten, or moved down a tier ------ cached: in front some day
//
// A model with recurrent layers keeps states as well (state_pool.h), and a sequence of it can go on only at tokens
// after which there is one: that it holds itself, or that the tree has for its blocks. resume_point() returns where
// that is, and is asked wherever a sequence falls back. Without states it is any token.
//
// Knows token ids, block ids and state ids only. One thread.
//
// Where an allocation fails, match(), fork() and reserve() throw std::bad_alloc with every reference still one of a
// table's entries; publish() leaves the block unpublished; what takes away allocates nothing.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "cache/block_pool.h"
#include "cache/prefix_tree.h"
#include "cache/state_pool.h"

namespace ibid {

using BlockTable = std::vector<BlockId>;

// The states that a sequence refers to, each once a reference: after its first n_tokens tokens. In no order.
struct HeldState {
  int32_t n_tokens = 0;
  StateId state = StateId::kNone;
  bool operator==(const HeldState&) const = default;
};
using StateTable = std::vector<HeldState>;

// Of those, the state after n tokens; kNone: there is none.
inline StateId state_after(const StateTable& states, int32_t n) {
  for (const HeldState& held : states) {
    if (held.n_tokens == n) return held.state;
  }
  return StateId::kNone;
}

struct BlockCacheOptions {
  int32_t n_blocks = 0;       // of the device; 0: nothing is kept, all tables stay empty, and there is no prefix cache
  int32_t n_host_blocks = 0;  // of the tier below; 0: there is none
  int32_t n_states = 0;       // of the device, of a model with recurrent layers; 0: none
  int32_t n_host_states = 0;  // of the tier below
  int32_t state_step = 2048;  // a sequence leaves a snapshot after every so many tokens
  int32_t block_len = 16;     // B
  bool prefix_cache = true;   // off: nothing is published, nothing is found
  // Partial reuse in multiples of so many tokens (KV dtypes with groups along tokens cannot be cut inside one);
  // 0: whole blocks only.
  int32_t partial_step = 1;
  PrefixHash hash = PrefixHash();
};

class BlockCache {
 public:
  explicit BlockCache(const BlockCacheOptions& options);
  BlockCache(const BlockCache&) = delete;
  BlockCache& operator=(const BlockCache&) = delete;

  int32_t block_len() const { return options_.block_len; }
  int32_t n_blocks_for(int32_t n_tokens) const {
    return keeps_blocks() ? (n_tokens + options_.block_len - 1) / options_.block_len : 0;
  }
  int32_t state_step() const { return options_.state_step; }
  bool keeps_blocks() const { return options_.n_blocks > 0; }

  // Fills the empty `table` with the longest cached beginning of `tokens`; returns how many tokens it holds. What lies
  // in a lower tier comes up as far as there is room, appended to `copies`.
  int32_t match(ScopeId scope, std::span<const TokenId> tokens, BlockTable& table, std::vector<BlockCopy>& copies);
  // The same of a model that may have states: as far as one can go on from. Adds that state to the empty `states`.
  int32_t match(ScopeId scope, std::span<const TokenId> tokens, BlockTable& table, StateTable& states,
                std::vector<BlockCopy>& copies);
  // The same of whole blocks alone, whether one can go on after them or not.
  int32_t match_blocks(ScopeId scope, std::span<const TokenId> tokens, BlockTable& table,
                       std::vector<BlockCopy>& copies);
  // How many tokens match() would find, had the device room for them, and no more than that: 0 for want of memory to
  // look.
  int32_t n_known(ScopeId scope, std::span<const TokenId> tokens);
  // Of the last match() or n_known(): how many tokens blocks are known for, whether one can go on after them or not.
  int32_t n_agreed() const { return n_agreed_; }
  // Fills the empty `table` with the blocks that hold the first n_tokens of `from`, an unfinished one included.
  void fork(const BlockTable& from, int32_t n_tokens, BlockTable& table);
  // The same as far as resume_point(), which is returned, with its state.
  int32_t fork(const BlockTable& from, const StateTable& states_from, int32_t n_tokens, BlockTable& table,
               StateTable& states);

  // The largest position <= n_tokens from which a sequence that holds these blocks and states can go on. Without
  // recurrent layers that is n_tokens itself.
  int32_t resume_point(const BlockTable& table, const StateTable& states, int32_t n_tokens) const {
    return states_.keeps_states() ? find_resume_point(table, states, n_tokens) : n_tokens;
  }
  // Falls back to resume_point(), or further where there is no room to bring its state up: forgets the blocks after it
  // and all states but its own. Returns it.
  int32_t rewind(BlockTable& table, StateTable& states, int32_t n_tokens);
  // The same, to a position that begins a block.
  int32_t rewind_to_block(BlockTable& table, StateTable& states, int32_t n_tokens);

  // Adds to `next` a state to write after n_tokens tokens: its spare one, the one that the sequence goes on from, at
  // n_computed, if it has no other reference, or a new one, evicting a snapshot. False: there is no room; then
  // nothing changed.
  bool reserve_state(const StateTable& states, int32_t n_computed, int32_t n_tokens, StateTable& next);
  // Sees to it that the next reserve_state() finds one, whatever others take until then: where it would be a new one,
  // it is taken now and stands in `next` as that after no token. False: there is no room.
  bool reserve_spare_state(const StateTable& states, int32_t n_computed, StateTable& next);
  // Lets the tree hold the state after n_tokens tokens of the table, which has published n_published blocks. Nothing
  // where the tree does not know these tokens. It is written no more.
  void hold_state(ScopeId scope, std::span<const TokenId> tokens, int32_t n_tokens, int32_t n_published,
                  const BlockTable& table, StateId state);
  // Drops all references but that of the state after n_tokens tokens; but those of states after so many or more.
  void keep_state(StateTable& states, int32_t n_tokens);
  void drop_states_before(StateTable& states, int32_t n_tokens);
  void release(StateTable& states) { keep_state(states, -1); }
  // What is to be copied before the states of a step are read or written; done, with transferred().
  std::span<const StateCopy> state_copies() const { return states_.copies(); }

  // How many blocks reserve() would take.
  int32_t n_blocks_missing(const BlockTable& table, int32_t n_written, int32_t n_wanted) const;
  // Makes positions [n_written, n_wanted) writable: adds blocks, evicting cached ones, and replaces the block that
  // n_written lies in if others can see what would be written over, appending what to copy. False when there is no
  // room: then nothing changed.
  bool reserve(BlockTable& table, int32_t n_written, int32_t n_wanted, std::vector<BlockCopy>& copies);

  // Publishes the full blocks [n_published, n_written / B) of the table, which holds `tokens`. Blocks that the tree has
  // already take the place of the table's own. Returns the new n_published.
  int32_t publish(ScopeId scope, std::span<const TokenId> tokens, int32_t n_written, int32_t n_published,
                  BlockTable& table);
  // Publishes the unfinished block after them as far as it is written. Its table goes on writing after that. Returns
  // the node that stands for it; kNone: there is none.
  NodeId publish_tail(ScopeId scope, std::span<const TokenId> tokens, int32_t n_written, int32_t n_published,
                      const BlockTable& table);
  // The copies of a plan are done.
  void transferred(std::span<const BlockCopy> copies);

  // Forgets what lies after the first n_tokens positions; no bytes move.
  void truncate(BlockTable& table, int32_t n_tokens);
  void release(BlockTable& table) { truncate(table, 0); }
  // Gives back the blocks that hold positions before n_tokens only, less one for safety's sake when a fork steps back;
  // their entries become kNone. The last published block stays: what follows it is published after it.
  void release_before(int32_t n_tokens, int32_t n_published, BlockTable& table);

  // Whether what is evicted goes to lower tiers and what lies there is found (at first: yes). What lies there stays.
  void use_lower_tiers(bool are_used) { uses_lower_tiers_ = are_used; }
  bool uses_lower_tiers() const { return uses_lower_tiers_; }

  PrefixTree& tree() { return tree_; }
  const PrefixTree& tree() const { return tree_; }
  const BlockPool& pool(Tier tier = Tier::kDevice) const { return pools_[raw_tier(tier)]; }
  int64_t n_moved_down() const { return n_moved_down_; }  // blocks, from the device to the host
  int64_t n_moved_up() const { return n_moved_up_; }
  StatePool& states() { return states_; }
  const StatePool& states() const { return states_; }
  // free + cached + in transfer + in use == total in each tier, the lists and the tree agree. CHECKs.
  void self_check() const;

 private:
  BlockPool& device() { return pools_[raw_tier(Tier::kDevice)]; }
  BlockPool& pool_of(Tier tier) { return pools_[raw_tier(tier)]; }
  BlockId take(Tier tier, std::vector<BlockCopy>& copies);
  void evict(NodeId node, Tier tier, std::vector<BlockCopy>& copies);
  bool move_down(NodeId node, Tier tier, std::vector<BlockCopy>& copies);
  bool append(NodeId node, BlockTable& table, std::vector<BlockCopy>& copies);
  void plan_copy(const BlockCopy& copy, std::vector<BlockCopy>& copies);
  int32_t find_blocks(ScopeId scope, std::span<const TokenId> tokens);
  int32_t find_path(ScopeId scope, std::span<const TokenId> tokens);
  int32_t take_path(int32_t n_matched, BlockTable& table, std::vector<BlockCopy>& copies);
  std::optional<NodeId> parent_at(size_t i, const BlockTable& table) const;
  int32_t cut_path_to_state(ScopeId scope, std::span<const TokenId> tokens);
  int32_t find_resume_point(const BlockTable& table, const StateTable& states, int32_t n_tokens) const;
  template <typename Drops>
  void drop_states(StateTable& states, Drops drops);
  bool take_state(const BlockTable& table, int32_t n_tokens, StateTable& states);
  bool must_copy(const BlockTable& table, int32_t n_written, int32_t n_wanted) const;

  BlockCacheOptions options_;
  BlockPools pools_;
  StatePool states_;
  PrefixTree tree_;
  std::vector<NodeId> path_;  // of find_path()
  int32_t n_agreed_ = 0;      // of it
  bool uses_lower_tiers_ = true;
  int64_t n_moved_down_ = 0;
  int64_t n_moved_up_ = 0;
};

}  // namespace ibid
