#include "cache/state_pool.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace ibid {
namespace {

// Copies of a step, for each slot; a snapshot that finds no room among them is forgotten instead of moved.
constexpr size_t kCopiesOfASlot = 2;

// The slot of a lower tier that a copy reads or writes until it is done.
std::pair<Tier, StateId> below_device(const StateCopy& copy) {
  if (copy.to_tier != Tier::kDevice) return {copy.to_tier, copy.to};
  return {copy.from_tier, copy.from};
}

}  // namespace

StatePool::StatePool(int32_t n_states, int32_t n_host_states, int32_t n_nodes)
    : pools_{BlockPool(n_states), BlockPool(n_host_states)} {
  CHECK(n_states > 0 || n_host_states == 0);
  if (n_states == 0) return;
  const auto n = static_cast<size_t>(n_states) + static_cast<size_t>(n_host_states);
  snapshots_.resize(n);
  for (size_t i = n; i-- > 0;) snapshots_[i].next = std::exchange(first_unused_, static_cast<int32_t>(i));
  first_of_.assign(static_cast<size_t>(n_nodes), -1);
  copies_.reserve(kCopiesOfASlot * n);
}

int32_t StatePool::first_of(NodeId node) const {
  return first_of_.empty() ? -1 : first_of_[static_cast<size_t>(raw(node))];
}

// ---- slots ---------------------------------------------------------------------------------------------------------

StateId StatePool::take() { return take(Tier::kDevice); }

StateId StatePool::take(Tier tier) {
  BlockPool& pool = pool_of(tier);
  CHECK(pool.front() != BlockId::kNone, "take() of a state where none is available");
  if (const NodeId held = pool.node_of(pool.front()); held != NodeId::kNone) evict(raw(held), tier);
  return state(pool.take());
}

void StatePool::evict(int32_t snapshot, Tier tier) {
  bool is_kept = false;
  for (const Tier other : kAllTiers) is_kept |= other != tier && at(snapshot).slots[raw_tier(other)] != StateId::kNone;
  if (!is_kept) is_kept = move_down(snapshot, tier);
  is_kept ? leave(snapshot, tier) : remove(snapshot);
}

bool StatePool::move_down(int32_t snapshot, Tier tier) {
  if (tier != Tier::kDevice || pool_of(Tier::kHost).n_available() == 0 || copies_.size() == copies_.capacity())
    return false;
  const StateId target = take(Tier::kHost);
  plan_copy({at(snapshot).slots[raw_tier(tier)], target, tier, Tier::kHost});
  settle(snapshot, Tier::kHost, target);
  pool_of(Tier::kHost).drop_reference(slot(target));
  return true;
}

void StatePool::plan_copy(const StateCopy& copy) {
  copies_.push_back(copy);
  ++(copy.to_tier == Tier::kDevice ? n_moved_up_ : n_moved_down_);
  const auto [tier, below] = below_device(copy);
  pool_of(tier).begin_transfer(slot(below));
}

void StatePool::transferred() {
  for (const StateCopy& copy : copies_) {
    const auto [tier, below] = below_device(copy);
    pool_of(tier).end_transfer(slot(below));
  }
  copies_.clear();
}

// ---- snapshots -----------------------------------------------------------------------------------------------------

int32_t StatePool::snapshot_at(NodeId node, int32_t n) const {
  for (int32_t i = first_of(node); i >= 0; i = at(i).next) {
    if (at(i).n_tokens == n) return i;
  }
  return -1;
}

// A planned copy is yet to write it.
bool StatePool::is_awaited(Tier tier, StateId state) const {
  return std::ranges::any_of(copies_, [=](const StateCopy& c) { return c.to_tier == tier && c.to == state; });
}

void StatePool::hold(NodeId node, int32_t n, StateId state) {
  CHECK(n > 0 && n_references(state) > 0, "a snapshot is of a state in use, after one token at least");
  if (is_snapshot(state)) return;
  int32_t snapshot = snapshot_at(node, n);
  if (snapshot >= 0 && at(snapshot).slots[raw_tier(Tier::kDevice)] != StateId::kNone) return;
  if (snapshot < 0) {
    snapshot = first_unused_;  // there is one: each has a slot, and this slot is no snapshot's
    CHECK(snapshot >= 0);
    first_unused_ = at(snapshot).next;
    int32_t& first = first_of_[static_cast<size_t>(raw(node))];
    at(snapshot) = {.node = node, .n_tokens = n, .next = std::exchange(first, snapshot)};
    ++n_snapshots_;
  }
  settle(snapshot, Tier::kDevice, state);
  if (changed_) changed_(node);
}

int32_t StatePool::longest(NodeId node, int32_t n) const {
  int32_t most = 0;
  for (int32_t i = first_of(node); i >= 0; i = at(i).next) {
    if (at(i).n_tokens <= n) most = std::max(most, at(i).n_tokens);
  }
  return most;
}

int32_t StatePool::longest_on_device(NodeId node, int32_t n) const {
  int32_t most = 0;
  for (int32_t i = first_of(node); i >= 0; i = at(i).next) {
    const bool is_here = at(i).slots[raw_tier(Tier::kDevice)] != StateId::kNone;
    if (is_here && at(i).n_tokens <= n) most = std::max(most, at(i).n_tokens);
  }
  return most;
}

StateId StatePool::find(NodeId node, int32_t n) {
  const int32_t snapshot = snapshot_at(node, n);
  CHECK(snapshot >= 0, "find() of a snapshot that the node has not");
  if (const StateId here = at(snapshot).slots[raw_tier(Tier::kDevice)]; here != StateId::kNone) {
    add_reference(here);
    return here;
  }
  if (n_available() == 0 || copies_.size() == copies_.capacity()) return StateId::kNone;
  const StateId below = at(snapshot).slots[raw_tier(Tier::kHost)];
  // Held, so that what has to go for it does not go to its own place.
  pool_of(Tier::kHost).begin_transfer(slot(below));
  const StateId target = take(Tier::kDevice);
  const bool has_place = copies_.size() < copies_.capacity();
  if (has_place) {
    plan_copy({below, target, Tier::kHost, Tier::kDevice});
    settle(snapshot, Tier::kDevice, target);
  } else {
    drop_reference(target);
  }
  pool_of(Tier::kHost).end_transfer(slot(below));
  return has_place ? target : StateId::kNone;
}

int32_t StatePool::take_out(NodeId node) {
  return first_of_.empty() ? -1 : std::exchange(first_of_[static_cast<size_t>(raw(node))], -1);
}

void StatePool::put(NodeId node, int32_t snapshots) {
  for (int32_t i = snapshots; i >= 0;) {
    const int32_t snapshot = std::exchange(i, at(i).next);
    if (node == NodeId::kNone || snapshot_at(node, at(snapshot).n_tokens) >= 0) {
      drop(snapshot);
      continue;
    }
    at(snapshot).node = node;
    at(snapshot).next = std::exchange(first_of_[static_cast<size_t>(raw(node))], snapshot);
  }
  if (node != NodeId::kNone && changed_) changed_(node);
}

void StatePool::settle(int32_t snapshot, Tier tier, StateId state) {
  at(snapshot).slots[raw_tier(tier)] = state;
  pool_of(tier).set_node(slot(state), NodeId{snapshot});
}

void StatePool::leave(int32_t snapshot, Tier tier) {
  const StateId state = std::exchange(at(snapshot).slots[raw_tier(tier)], StateId::kNone);
  pool_of(tier).set_node(slot(state), NodeId::kNone);
}

void StatePool::remove(int32_t snapshot) {
  int32_t* link = &first_of_[static_cast<size_t>(raw(at(snapshot).node))];
  while (*link != snapshot) link = &at(*link).next;
  *link = at(snapshot).next;
  const NodeId node = at(snapshot).node;
  drop(snapshot);
  if (!has_snapshots(node) && changed_) changed_(node);
}

// One that hangs on no node any more.
void StatePool::drop(int32_t snapshot) {
  for (const Tier tier : kAllTiers) {
    if (at(snapshot).slots[raw_tier(tier)] != StateId::kNone) leave(snapshot, tier);
  }
  at(snapshot) = {.next = std::exchange(first_unused_, snapshot)};
  --n_snapshots_;
}

void StatePool::self_check() const {
  size_t n_held = 0, n_slots = 0;
  for (const Tier tier : kAllTiers) {
    const BlockPool& slots = pool(tier);
    slots.self_check();
    for (int32_t i = 0; i < slots.n_total(); ++i) {
      const NodeId held = slots.node_of(BlockId{i});
      if (held == NodeId::kNone) continue;
      ++n_held;
      CHECK(at(raw(held)).slots[raw_tier(tier)] == StateId{i}, "a state and its snapshot disagree");
    }
  }
  int32_t n = 0;
  for (size_t node = 0; node < first_of_.size(); ++node) {
    for (int32_t i = first_of_[node]; i >= 0; i = at(i).next) {
      CHECK(at(i).node == NodeId{static_cast<int32_t>(node)}, "a snapshot hangs on another node than its own");
      size_t n_here = 0;
      for (const StateId state : at(i).slots) n_here += state != StateId::kNone;
      CHECK(n_here > 0, "a snapshot without a slot");
      CHECK(snapshot_at(at(i).node, at(i).n_tokens) == i, "a node has two snapshots after one token");
      n_slots += n_here;
      CHECK(++n <= n_snapshots_);
    }
  }
  CHECK(n == n_snapshots_ && n_slots == n_held, "snapshots are lost");
}

}  // namespace ibid
