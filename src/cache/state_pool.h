// StatePool: the recurrent states that sequences and the prefix tree refer to. A model with recurrent layers keeps,
// beside the keys and values of each token, one state a sequence: it is overwritten as tokens come, and after the first
// n tokens it is a function of those tokens alone. So a sequence can go on at the tokens after which its state was
// kept, and only there.
//
// All states have one size. The pool counts slots, one run of bytes each (the worker has the bytes), as BlockPool
// counts blocks: in use (referred to), in transfer, cached or free, free + cached + in transfer + in use == total in
// each tier, least recently released first out. What is evicted from the device goes to the host's tier where there is
// room, and comes up again when it is found.
//
// A snapshot is a state that a node of the prefix tree holds: after the first n tokens of the node. Taking one copies
// nothing: the slot is the node's from then on, it is written no more, and its sequence writes its next state to
// another one. It goes with its node at the latest; a node stays without its snapshots, and its block is among the next
// ones to be evicted then (prefix_tree.h).
//
// Allocates nothing after construction. One thread.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "cache/block_pool.h"
#include "cache/tier.h"

namespace ibid {

// A slot of one tier's states.
enum class StateId : int32_t { kNone = -1 };

// Copy the whole state.
struct StateCopy {
  StateId from = StateId::kNone;
  StateId to = StateId::kNone;
  Tier from_tier = Tier::kDevice;
  Tier to_tier = Tier::kDevice;
  bool operator==(const StateCopy&) const = default;
};

class StatePool {
 public:
  // n_nodes: ids of nodes that hold() may name. All may be 0: a model without recurrent layers.
  StatePool(int32_t n_states, int32_t n_host_states, int32_t n_nodes);

  // Who is called with a node that has its first snapshot, or has lost its last one and stays. It calls nothing here
  // that changes anything.
  void on_change(std::function<void(NodeId)> changed) { changed_ = std::move(changed); }

  bool keeps_states() const { return pool(Tier::kDevice).n_total() > 0; }
  // Slots on the device that take() can give.
  int32_t n_available() const { return pool(Tier::kDevice).n_available(); }
  // A slot on the device with one reference; there must be one. The snapshot that it had is moved down or forgotten.
  StateId take();
  void add_reference(StateId state) { device().add_reference(slot(state)); }
  void drop_reference(StateId state) { device().drop_reference(slot(state)); }
  int32_t n_references(StateId state) const { return pool(Tier::kDevice).n_references(slot(state)); }
  // Whether a snapshot lies in this slot of the device.
  bool is_snapshot(StateId state) const { return pool(Tier::kDevice).node_of(slot(state)) != NodeId::kNone; }
  // Whether who refers to it alone may write to it.
  bool may_write(StateId state) const { return n_references(state) == 1 && !is_snapshot(state); }

  // The device's `state`, which is written and in use, is the node's snapshot after its first n tokens. Stays out where
  // the node has one there on the device, or the slot is a snapshot already: they are equal.
  void hold(NodeId node, int32_t n, StateId state);
  // The most tokens, at most n, after which the node has a snapshot in any tier; 0: none.
  int32_t longest(NodeId node, int32_t n) const;
  // The same of those on the device.
  int32_t longest_on_device(NodeId node, int32_t n) const;
  bool has_snapshots(NodeId node) const { return first_of(node) >= 0; }
  // The node's snapshot after exactly n tokens, with one more reference, brought up if need be; kNone: there is no
  // room.
  StateId find(NodeId node, int32_t n);
  // Calls use(n, tier, state) for each of the node's snapshots: after its first n tokens, and a slot that holds its
  // bytes now. One that a planned copy is yet to write is left out.
  template <typename Use>
  void each_written(NodeId node, Use use) const {
    for (int32_t i = first_of(node); i >= 0; i = at(i).next) {
      for (const Tier tier : kAllTiers) {
        const StateId state = at(i).slots[raw_tier(tier)];
        if (state == StateId::kNone || is_awaited(tier, state)) continue;
        use(at(i).n_tokens, tier, state);
        break;
      }
    }
  }
  // The node is gone, and its snapshots with it.
  void forget(NodeId node) { put(NodeId::kNone, take_out(node)); }
  // Its snapshots, as a list that is put to a node which begins with the same tokens before anything else is called;
  // to kNone, they are forgotten.
  int32_t take_out(NodeId node);
  void put(NodeId node, int32_t snapshots);

  // What is to be copied, in this order, before states are read or written in a step; since the last transferred().
  std::span<const StateCopy> copies() const { return copies_; }
  void transferred();

  int32_t n_snapshots() const { return n_snapshots_; }
  int64_t n_moved_down() const { return n_moved_down_; }  // states, from the device to the host
  int64_t n_moved_up() const { return n_moved_up_; }
  const BlockPool& pool(Tier tier) const { return pools_[raw_tier(tier)]; }
  void self_check() const;  // CHECKs

 private:
  struct Snapshot {
    NodeId node = NodeId::kNone;                                           // kNone: unused
    int32_t n_tokens = 0;                                                  // of the node
    std::array<StateId, kTiers> slots = {StateId::kNone, StateId::kNone};  // where it lies, one at least
    int32_t next = -1;                                                     // of its node, or of the unused ones
  };
  // BlockPool counts slots of any kind: its block is a slot, its node the number of a snapshot.
  static BlockId slot(StateId state) { return BlockId{raw(state)}; }
  static StateId state(BlockId slot) { return StateId{raw(slot)}; }
  BlockPool& pool_of(Tier tier) { return pools_[raw_tier(tier)]; }
  BlockPool& device() { return pool_of(Tier::kDevice); }
  Snapshot& at(int32_t snapshot) { return snapshots_[static_cast<size_t>(snapshot)]; }
  const Snapshot& at(int32_t snapshot) const { return snapshots_[static_cast<size_t>(snapshot)]; }
  int32_t first_of(NodeId node) const;
  int32_t snapshot_at(NodeId node, int32_t n) const;
  bool is_awaited(Tier tier, StateId state) const;
  StateId take(Tier tier);
  void evict(int32_t snapshot, Tier tier);
  bool move_down(int32_t snapshot, Tier tier);
  void settle(int32_t snapshot, Tier tier, StateId state);
  void leave(int32_t snapshot, Tier tier);
  void remove(int32_t snapshot);
  void drop(int32_t snapshot);
  void plan_copy(const StateCopy& copy);

  std::array<BlockPool, kTiers> pools_;
  std::vector<Snapshot> snapshots_;  // as many as both tiers have slots
  std::vector<int32_t> first_of_;    // [nodes] the first of each, linked by next; -1: none. Empty without states
  int32_t first_unused_ = -1;
  int32_t n_snapshots_ = 0;
  int64_t n_moved_down_ = 0, n_moved_up_ = 0;
  std::vector<StateCopy> copies_;  // never more than it was made for
  std::function<void(NodeId)> changed_;
};

}  // namespace ibid
