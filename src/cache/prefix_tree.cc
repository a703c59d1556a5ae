#include "cache/prefix_tree.h"

#include <algorithm>
#include <bit>
#include <new>

#include "base/check.h"

namespace ibid {
namespace {

int32_t agreement(std::span<const TokenId> a, std::span<const TokenId> b) {
  const size_t n = std::min(a.size(), b.size());
  return static_cast<int32_t>(std::mismatch(a.begin(), a.begin() + static_cast<ptrdiff_t>(n), b.begin()).first -
                              a.begin());
}

}  // namespace

bool PrefixTree::Less::operator()(int32_t a, const Probe& b) const {
  const Probe pa = tree->probe(a);
  if (pa.parent != b.parent) return pa.parent < b.parent;
  return std::lexicographical_compare(pa.tokens.begin(), pa.tokens.end(), b.tokens.begin(), b.tokens.end());
}
bool PrefixTree::Less::operator()(int32_t a, int32_t b) const { return (*this)(a, tree->probe(b)); }

PrefixTree::PrefixTree(BlockPool& pool, int32_t block_len, PrefixHash hash)
    : pool_(&pool),
      block_len_(block_len),
      hash_(hash),
      nodes_(static_cast<size_t>(pool.n_total())),
      tokens_(static_cast<size_t>(pool.n_total()) * static_cast<size_t>(block_len)),
      buckets_(std::bit_ceil(static_cast<size_t>(pool.n_total()) * 2), -1),
      order_(Less{this}) {
  CHECK(block_len > 0);
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

std::span<const TokenId> PrefixTree::tokens_of(BlockId block) const {
  return {tokens_.data() + static_cast<size_t>(raw(block)) * static_cast<size_t>(block_len_),
          static_cast<size_t>(block_len_)};
}

const PrefixHash::Value& PrefixTree::hash_of(int32_t parent) const {
  return parent < 0 ? scopes_[static_cast<size_t>(~parent)].hash : node(parent).hash;
}

int32_t PrefixTree::find(int32_t parent, const PrefixHash::Value& hash, std::span<const TokenId> tokens) {
  for (int32_t i = bucket(hash); i >= 0; i = node(i).next) {
    if (!(node(i).hash == hash)) continue;
    if (node(i).parent == parent && std::ranges::equal(tokens_of(BlockId{i}), tokens)) return i;
    ++n_collisions_;
  }
  return -1;
}

std::pair<int32_t, int32_t> PrefixTree::nearest(int32_t parent, std::span<const TokenId> tokens) const {
  // In lexicographic order the longest agreement is with a neighbour.
  const auto at = order_.lower_bound(Probe{parent, tokens});
  std::pair<int32_t, int32_t> best = {-1, 0};
  const auto consider = [&](int32_t block) {
    if (node(block).parent != parent) return;
    const int32_t n = agreement(tokens_of(BlockId{block}), tokens);
    if (n > best.second) best = {block, n};
  };
  if (at != order_.begin()) consider(*std::prev(at));
  if (at != order_.end()) consider(*at);
  return best;
}

int32_t PrefixTree::match(ScopeId scope, std::span<const TokenId> tokens, int32_t partial_step,
                          std::vector<BlockId>& table) {
  int32_t parent = ~raw(scope);
  int32_t n_matched = 0;
  const size_t len = static_cast<size_t>(block_len_);
  while (tokens.size() >= len) {
    const int32_t child = find(parent, hash_.of_block(hash_of(parent), tokens.first(len)), tokens.first(len));
    if (child < 0) break;
    table.push_back(BlockId{child});
    pool_->add_reference(BlockId{child});
    n_matched += block_len_;
    tokens = tokens.subspan(len);
    parent = child;
  }
  if (partial_step <= 0 || tokens.empty()) return n_matched;
  const auto [child, n_agree] = nearest(parent, tokens.first(std::min(tokens.size(), len)));
  const int32_t n_usable = n_agree / partial_step * partial_step;
  if (n_usable == 0) return n_matched;
  table.push_back(BlockId{child});
  pool_->add_reference(BlockId{child});
  return n_matched + n_usable;
}

BlockId PrefixTree::publish(ScopeId scope, BlockId parent_block, std::span<const TokenId> tokens, BlockId block) {
  CHECK(tokens.size() == static_cast<size_t>(block_len_), "only full blocks are published");
  const int32_t parent = parent_block == BlockId::kNone ? ~raw(scope) : raw(parent_block);
  if (parent >= 0 && !pool_->is_marked(parent_block)) return block;
  const PrefixHash::Value hash = hash_.of_block(hash_of(parent), tokens);
  if (const int32_t known = find(parent, hash, tokens); known >= 0) {
    if (BlockId{known} == block) return block;
    pool_->add_reference(BlockId{known});
    pool_->drop_reference(block);
    return BlockId{known};
  }
  std::ranges::copy(tokens, tokens_.begin() + static_cast<ptrdiff_t>(raw(block)) * block_len_);
  node(raw(block)) = {hash, parent, bucket(hash), 0};
  try {
    order_.insert(raw(block));
  } catch (const std::bad_alloc&) {
    return block;
  }
  pool_->mark(block);
  bucket(hash) = raw(block);
  if (parent >= 0) {
    ++node(parent).n_children;
  } else {
    ++scopes_[static_cast<size_t>(~parent)].n_holders;
  }
  return block;
}

void PrefixTree::forget(BlockId block) {
  CHECK(pool_->is_marked(block), "forget() of a block that is no node");
  int32_t at = raw(block);
  for (;;) {
    while (node(at).n_children > 0) at = *order_.lower_bound(Probe{at, {}});
    const int32_t parent = node(at).parent;
    remove(at);
    if (at == raw(block)) return;
    at = parent;
  }
}

void PrefixTree::remove(int32_t block) {
  Node& n = node(block);
  int32_t* link = &bucket(n.hash);
  while (*link != block) link = &node(*link).next;
  *link = n.next;
  order_.erase(block);
  pool_->unmark(BlockId{block});
  if (n.parent >= 0) {
    --node(n.parent).n_children;
  } else {
    let_go(ScopeId{~n.parent});
  }
}

int64_t PrefixTree::n_holders() const {
  int64_t n = 0;
  for (const Scope& scope : scopes_) n += scope.n_holders;
  for (const int32_t block : order_) n -= node(block).parent < 0;
  return n;
}

void PrefixTree::self_check() const {
  int32_t n_marked = 0;
  for (int32_t i = 0; i < pool_->n_total(); ++i) n_marked += pool_->is_marked(BlockId{i});
  CHECK(n_marked == n_nodes(), "the tree and the pool's marks disagree");
  std::vector<int32_t> n_children(nodes_.size(), 0);
  for (const int32_t i : order_) {
    CHECK(pool_->is_marked(BlockId{i}));
    if (node(i).parent < 0) continue;
    CHECK(pool_->is_marked(BlockId{node(i).parent}), "a node's parent is no node");
    ++n_children[static_cast<size_t>(node(i).parent)];
  }
  for (const int32_t i : order_) CHECK(n_children[static_cast<size_t>(i)] == node(i).n_children);
}

}  // namespace ibid
