#include "cache/prefix_tree.h"

#include <algorithm>
#include <bit>
#include <new>
#include <utility>

#include "base/check.h"

namespace ibid {
namespace {

constexpr int kMostSiblings = 32;  // that are asked for a snapshot, on either side of where tokens would stand

int32_t agreement(std::span<const TokenId> a, std::span<const TokenId> b) {
  const size_t n = std::min(a.size(), b.size());
  return static_cast<int32_t>(std::mismatch(a.begin(), a.begin() + static_cast<ptrdiff_t>(n), b.begin()).first -
                              a.begin());
}

// Whether no sequence can go on from the node: no snapshot lies in it or after it.
bool is_dead_end(const StatePool& states, NodeId node, int32_t n_children) {
  return n_children == 0 && !states.has_snapshots(node);
}

}  // namespace

bool PrefixTree::Less::operator()(int32_t a, const Probe& b) const {
  const Probe pa = tree->probe(a);
  if (pa.parent != b.parent) return pa.parent < b.parent;
  return std::lexicographical_compare(pa.tokens.begin(), pa.tokens.end(), b.tokens.begin(), b.tokens.end());
}
bool PrefixTree::Less::operator()(int32_t a, int32_t b) const { return (*this)(a, tree->probe(b)); }

PrefixTree::PrefixTree(BlockPools& pools, int32_t block_len, PrefixHash hash, StatePool* states)
    : pools_(&pools), states_(states), block_len_(block_len), hash_(hash), order_(Less{this}) {
  CHECK(block_len > 0);
  size_t n_blocks = 0;
  for (const BlockPool& pool : pools) n_blocks += static_cast<size_t>(pool.n_total());
  nodes_.resize(n_blocks);
  tokens_.resize(n_blocks * static_cast<size_t>(block_len));
  buckets_.assign(std::bit_ceil(n_blocks * 2), -1);
  for (size_t i = n_blocks; i-- > 0;) {
    nodes_[i].next = first_unused_;
    first_unused_ = static_cast<int32_t>(i);
  }
  if (states_ != nullptr) states_->on_change([this](NodeId node) { weigh(raw(node)); });
}

ScopeId PrefixTree::hold(const CacheScope& scope) {
  std::string spelled = scope.spelled();
  if (const auto it = scope_ids_.find(spelled); it != scope_ids_.end()) {
    ++scopes_[static_cast<size_t>(it->second)].n_holders;
    return ScopeId{it->second};
  }
  if (free_scopes_.empty()) {
    free_scopes_.reserve(scopes_.size() + 1);  // so that letting go of all finds room
    scopes_.emplace_back();
    free_scopes_.push_back(static_cast<int32_t>(scopes_.size()) - 1);
  }
  const int32_t id = free_scopes_.back();
  const PrefixHash::Value hash = hash_.of_scope(spelled);
  scope_ids_.emplace(spelled, id);
  free_scopes_.pop_back();
  scopes_[static_cast<size_t>(id)] = {std::move(spelled), hash, 1};
  return ScopeId{id};
}

void PrefixTree::let_go(ScopeId scope) {
  Scope& s = scopes_[static_cast<size_t>(raw(scope))];
  CHECK(s.n_holders > 0);
  if (--s.n_holders > 0) return;
  scope_ids_.erase(s.spelled);
  free_scopes_.push_back(raw(scope));
}

std::span<const TokenId> PrefixTree::tokens_of(NodeId node) const {
  return {tokens_.data() + static_cast<size_t>(raw(node)) * static_cast<size_t>(block_len_),
          static_cast<size_t>(at(raw(node)).len)};
}

Tier PrefixTree::tier_of(NodeId node) const {
  for (const Tier tier : kAllTiers) {
    if (block_of(node, tier) != BlockId::kNone) return tier;
  }
  CHECK(false, "a node without a residence");
}

const PrefixHash::Value& PrefixTree::hash_of(int32_t parent) const {
  return parent < 0 ? scopes_[static_cast<size_t>(~parent)].hash : at(parent).hash;
}

int32_t PrefixTree::find(int32_t parent, const PrefixHash::Value& hash, std::span<const TokenId> tokens) {
  for (int32_t i = bucket(hash); i >= 0; i = at(i).next) {
    if (!(at(i).hash == hash)) continue;
    if (at(i).parent == parent && std::ranges::equal(tokens_of(NodeId{i}), tokens)) return i;
    ++n_collisions_;
  }
  return -1;
}

std::pair<int32_t, int32_t> PrefixTree::nearest(int32_t parent, std::span<const TokenId> tokens) const {
  std::pair<int32_t, int32_t> best = {-1, 0};
  const auto consider = [&](int32_t node) {
    if (at(node).parent != parent) return;
    const int32_t n = agreement(tokens_of(NodeId{node}), tokens);
    if (n > best.second) best = {node, n};
  };
  if (parent >= 0 && at(parent).n_children == 0) return best;
  if (parent >= 0 && at(parent).only_child >= 0) return consider(at(parent).only_child), best;
  // In lexicographic order the longest agreement is with a neighbour.
  const auto place = order_.lower_bound(Probe{parent, tokens});
  if (place != order_.begin()) consider(*std::prev(place));
  if (place != order_.end()) consider(*place);
  return best;
}

int32_t PrefixTree::match(ScopeId scope, std::span<const TokenId> tokens, int32_t partial_step,
                          std::vector<NodeId>& path) {
  int32_t parent = ~raw(scope);
  int32_t n_matched = 0;
  const size_t len = static_cast<size_t>(block_len_);
  while (tokens.size() >= len) {
    const int32_t child = find(parent, hash_.of_block(hash_of(parent), tokens.first(len)), tokens.first(len));
    if (child < 0) break;
    path.push_back(NodeId{child});
    n_matched += block_len_;
    tokens = tokens.subspan(len);
    parent = child;
  }
  if (partial_step <= 0 || tokens.empty()) return n_matched;
  const auto [child, n_agree] = nearest(parent, tokens.first(std::min(tokens.size(), len)));
  const int32_t n_usable = n_agree / partial_step * partial_step;
  if (n_usable == 0) return n_matched;
  path.push_back(NodeId{child});
  return n_matched + n_usable;
}

std::pair<NodeId, int32_t> PrefixTree::longest_state(ScopeId scope, NodeId parent_node,
                                                     std::span<const TokenId> tokens) const {
  std::pair<NodeId, int32_t> best = {NodeId::kNone, 0};
  // False where nothing further away can be better: agreement only falls.
  const auto consider = [&](int32_t node, int32_t parent) {
    if (at(node).parent != parent) return false;
    const int32_t n_agree = agreement(tokens_of(NodeId{node}), tokens);
    const int32_t n = states_->longest(NodeId{node}, n_agree);
    if (n > best.second) best = {NodeId{node}, n};
    return n_agree > best.second;
  };
  const int32_t parent = parent_node == NodeId::kNone ? ~raw(scope) : raw(parent_node);
  if (parent >= 0 && at(parent).n_children == 0) return best;
  if (parent >= 0 && at(parent).only_child >= 0) {
    consider(at(parent).only_child, parent);
    return best;
  }
  const auto place = order_.lower_bound(Probe{parent, tokens});
  int n_left = kMostSiblings;
  for (auto it = place; it != order_.begin() && n_left > 0 && consider(*std::prev(it), parent); --it) --n_left;
  n_left = kMostSiblings;
  for (auto it = place; it != order_.end() && n_left > 0 && consider(*it, parent); ++it) --n_left;
  return best;
}

NodeId PrefixTree::publish(ScopeId scope, NodeId parent_node, std::span<const TokenId> tokens, BlockId block) {
  CHECK(!tokens.empty() && tokens.size() <= static_cast<size_t>(block_len_));
  const int32_t parent = parent_node == NodeId::kNone ? ~raw(scope) : raw(parent_node);
  if (parent >= 0 && (!is_node(parent_node) || !is_whole(parent))) return NodeId::kNone;
  PrefixHash::Value hash;
  if (tokens.size() == static_cast<size_t>(block_len_)) hash = hash_.of_block(hash_of(parent), tokens);
  int32_t node = known(parent, hash, tokens);
  // A tail may be the beginning of a whole block that lies further down: its block is no residence of that.
  const bool is_tail = tokens.size() < static_cast<size_t>(block_len_);
  if (node >= 0 && (block_of(NodeId{node}, Tier::kDevice) != BlockId::kNone || is_tail)) return NodeId{node};
  // What this block was known to hold until now is the beginning of what it holds now.
  const NodeId shorter = (*pools_)[raw_tier(Tier::kDevice)].node_of(block);
  const int32_t snapshots = shorter != NodeId::kNone && states_ != nullptr ? states_->take_out(shorter) : -1;
  if (shorter != NodeId::kNone) forget(shorter);
  if (node < 0) node = insert(parent, hash, tokens);
  if (snapshots >= 0) states_->put(NodeId{node}, snapshots);
  if (node < 0) return NodeId::kNone;
  settle(NodeId{node}, Tier::kDevice, block);
  forget_shorter(node);
  return NodeId{node};
}

// A whole block's equal, or for a tail any child that begins with it.
int32_t PrefixTree::known(int32_t parent, const PrefixHash::Value& hash, std::span<const TokenId> tokens) {
  if (tokens.size() == static_cast<size_t>(block_len_)) return find(parent, hash, tokens);
  const auto [child, n_agree] = nearest(parent, tokens);
  return n_agree == static_cast<int32_t>(tokens.size()) ? child : -1;
}

// -1: no memory. There is a node to be had: each has a block, and the one to be published is no node's.
int32_t PrefixTree::insert(int32_t parent, const PrefixHash::Value& hash, std::span<const TokenId> tokens) {
  const int32_t node = first_unused_;
  CHECK(node >= 0);
  Node& n = at(node);
  const int32_t next_unused = n.next;
  std::ranges::copy(tokens, tokens_.begin() + static_cast<ptrdiff_t>(node) * block_len_);
  n = {.hash = hash, .parent = parent, .len = static_cast<int32_t>(tokens.size())};
  try {
    put_in_order(node);
  } catch (const std::bad_alloc&) {
    n = {.next = next_unused};
    return -1;
  }
  first_unused_ = next_unused;
  ++n_nodes_;
  if (is_whole(node)) n.next = std::exchange(bucket(hash), node);
  ++(parent >= 0 ? at(parent).n_children : scopes_[static_cast<size_t>(~parent)].n_holders);
  if (parent >= 0) weigh(parent);
  return node;
}

// Of a model with states: whether the node's blocks go before others.
void PrefixTree::weigh(int32_t node) {
  if (states_ == nullptr || at(node).len == 0) return;
  const bool goes_first = is_dead_end(*states_, NodeId{node}, at(node).n_children);
  for (const Tier tier : kAllTiers) {
    if (const BlockId block = at(node).blocks[raw_tier(tier)]; block != BlockId::kNone)
      (*pools_)[raw_tier(tier)].set_goes_first(block, goes_first);
  }
}

// Before its parent counts it. Where there is no memory, throws with every child findable that was.
void PrefixTree::put_in_order(int32_t node) {
  const int32_t parent = at(node).parent;
  if (parent >= 0 && at(parent).n_children == 0) {
    at(parent).only_child = node;
    return;
  }
  if (parent >= 0 && at(parent).only_child >= 0) {
    order_.insert(at(parent).only_child);
    at(parent).only_child = -1;
  }
  order_.insert(node);
}

void PrefixTree::take_out_of_order(int32_t node) {
  const int32_t parent = at(node).parent;
  if (parent >= 0 && at(parent).only_child == node) {
    at(parent).only_child = -1;
  } else {
    order_.erase(node);
  }
}

int32_t PrefixTree::first_child(int32_t node) const {
  return at(node).only_child >= 0 ? at(node).only_child : *order_.lower_bound(Probe{node, {}});
}

// Removes tails that `node` begins with: it contains them.
void PrefixTree::forget_shorter(int32_t node) {
  if (const int32_t parent = at(node).parent; parent >= 0 && at(parent).only_child == node) return;
  for (;;) {
    const auto place = order_.find(node);
    if (place == order_.begin()) return;
    const int32_t before = *std::prev(place);
    if (at(before).parent != at(node).parent || at(before).len >= at(node).len) return;
    if (agreement(tokens_of(NodeId{before}), tokens_of(NodeId{node})) < at(before).len) return;
    if (states_ != nullptr) states_->put(NodeId{node}, states_->take_out(NodeId{before}));
    remove(before);
  }
}

void PrefixTree::prefetch(const BlockPool& pool, BlockId block) const {
  if (block == BlockId::kNone) return;
  if (const NodeId node = pool.node_of(block); node != NodeId::kNone) {
    const Node& n = at(raw(node));  // it was asked for one block ago
    __builtin_prefetch(&buckets_[n.hash.low & (buckets_.size() - 1)]);
    if (n.parent >= 0) __builtin_prefetch(&at(n.parent));
  }
  const BlockId following = pool.following(block);
  if (following == BlockId::kNone) return;
  if (const NodeId node = pool.node_of(following); node != NodeId::kNone) __builtin_prefetch(&at(raw(node)));
  if (const BlockId third = pool.following(following); third != BlockId::kNone) pool.prefetch(third);
}

void PrefixTree::settle(NodeId node, Tier tier, BlockId block) {
  CHECK(block_of(node, tier) == BlockId::kNone && (*pools_)[raw_tier(tier)].node_of(block) == NodeId::kNone,
        "a prefix lies in a tier once, and a block holds one prefix");
  at(raw(node)).blocks[raw_tier(tier)] = block;
  (*pools_)[raw_tier(tier)].set_node(block, node);
  weigh(raw(node));
  if (observer_ != nullptr && is_whole(raw(node))) observer_->settled(*this, node, tier);
}

void PrefixTree::leave(NodeId node, Tier tier) {
  if (observer_ != nullptr && is_whole(raw(node))) observer_->left(*this, node, tier);
  const BlockId block = std::exchange(at(raw(node)).blocks[raw_tier(tier)], BlockId::kNone);
  (*pools_)[raw_tier(tier)].set_node(block, NodeId::kNone);
  tier_of(node);  // there must be another one
}

void PrefixTree::forget(NodeId given) {
  CHECK(is_node(given), "forget() of what is no node");
  int32_t node = raw(given);
  for (;;) {
    while (at(node).n_children > 0) node = first_child(node);
    const int32_t parent = at(node).parent;
    remove(node);
    if (node == raw(given)) return;
    node = parent;
  }
}

void PrefixTree::remove(int32_t node) {
  Node& n = at(node);
  for (size_t i = 0; observer_ != nullptr && is_whole(node) && i < kTiers; ++i) {
    if (n.blocks[i] != BlockId::kNone) observer_->left(*this, NodeId{node}, kAllTiers[i]);
  }
  if (is_whole(node)) {
    int32_t* link = &bucket(n.hash);
    while (*link != node) link = &at(*link).next;
    *link = n.next;
  }
  take_out_of_order(node);
  if (states_ != nullptr) states_->forget(NodeId{node});
  --n_nodes_;
  for (const Tier tier : kAllTiers) {
    if (const BlockId block = n.blocks[raw_tier(tier)]; block != BlockId::kNone)
      (*pools_)[raw_tier(tier)].set_node(block, NodeId::kNone);
  }
  const int32_t parent = n.parent;
  n = {.next = std::exchange(first_unused_, node)};
  if (parent >= 0) {
    --at(parent).n_children;
    weigh(parent);
  } else {
    let_go(ScopeId{~parent});
  }
}

int64_t PrefixTree::n_holders() const {
  int64_t n = 0;
  for (const Scope& scope : scopes_) n += scope.n_holders;
  for (const Node& node : nodes_) n -= node.len > 0 && node.parent < 0;
  return n;
}

void PrefixTree::self_check() const {
  size_t n_settled = 0, n_residences = 0;
  for (const Tier tier : kAllTiers) {
    const BlockPool& pool = (*pools_)[raw_tier(tier)];
    for (int32_t i = 0; i < pool.n_total(); ++i) {
      const NodeId node = pool.node_of(BlockId{i});
      if (node == NodeId::kNone) continue;
      ++n_settled;
      CHECK(is_node(node) && block_of(node, tier) == BlockId{i}, "a block and its node disagree");
      const bool goes_first = states_ != nullptr && is_dead_end(*states_, node, at(raw(node)).n_children);
      CHECK(pool.goes_first(BlockId{i}) == goes_first,
            "a block that nothing can go on from is kept, or another is not");
    }
  }
  std::vector<int32_t> n_children(nodes_.size(), 0);
  int32_t n_nodes = 0, n_ordered = 0;
  for (int32_t i = 0; i < static_cast<int32_t>(nodes_.size()); ++i) {
    if (at(i).len == 0) continue;
    ++n_nodes;
    size_t n_here = 0;
    for (const BlockId block : at(i).blocks) n_here += block != BlockId::kNone;
    CHECK(n_here > 0, "a node without a residence");
    n_residences += n_here;
    CHECK(is_whole(i) || at(i).n_children == 0, "something hangs below an unfinished tail");
    const int32_t parent = at(i).parent;
    n_ordered += parent < 0 || at(parent).only_child != i;
    if (parent < 0) continue;
    CHECK(at(parent).len > 0, "a node's parent is no node");
    CHECK(at(parent).only_child < 0 || at(parent).n_children == 1, "an only child has siblings");
    ++n_children[static_cast<size_t>(parent)];
  }
  CHECK(n_settled == n_residences && n_nodes == n_nodes_);
  CHECK(n_ordered == static_cast<int32_t>(order_.size()), "a child is found by no order");
  for (const int32_t i : order_) CHECK(at(i).parent < 0 || at(at(i).parent).only_child != i);
  for (size_t i = 0; i < nodes_.size(); ++i) CHECK(n_children[i] == nodes_[i].n_children);
}

}  // namespace ibid
