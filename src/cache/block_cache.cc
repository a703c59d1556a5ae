#include "cache/block_cache.h"

#include <algorithm>
#include <new>
#include <optional>
#include <utility>

#include "base/check.h"
#include "base/grow.h"

namespace ibid {
namespace {

// The end of a copy that is in transfer until it is done: what a lower tier receives, or gives to the device.
std::pair<Tier, BlockId> below_device(const BlockCopy& copy) {
  if (copy.to_tier != Tier::kDevice) return {copy.to_tier, copy.to};
  return {copy.from_tier, copy.from_tier == Tier::kDevice ? BlockId::kNone : copy.from};
}

}  // namespace

BlockCache::BlockCache(const BlockCacheOptions& options)
    : options_(options),
      pools_{BlockPool(options.n_blocks), BlockPool(options.n_host_blocks)},
      states_(options.n_states, options.n_host_states, options.n_blocks + options.n_host_blocks),
      tree_(pools_, options.block_len, options.hash, options.n_states > 0 ? &states_ : nullptr) {
  CHECK(options.n_states == 0 || options.n_blocks > 0);
  CHECK(options.n_blocks > 0 || (options.n_blocks == 0 && !options.prefix_cache));
}

// ---- tiers ---------------------------------------------------------------------------------------------------------

// The front block of a tier, which there must be; what it held is kept further down or forgotten.
BlockId BlockCache::take(Tier tier, std::vector<BlockCopy>& copies) {
  BlockPool& pool = pool_of(tier);
  const NodeId node = pool.node_of(pool.front());
  if (node != NodeId::kNone) evict(node, tier, copies);
  const BlockId taken = pool.take();
  tree_.prefetch(pool, pool.front());
  return taken;
}

void BlockCache::evict(NodeId node, Tier tier, std::vector<BlockCopy>& copies) {
  bool is_kept = false;
  for (const Tier other : kAllTiers) is_kept |= other != tier && tree_.block_of(node, other) != BlockId::kNone;
  // What nothing can go on from is worth no room further down.
  if (!is_kept && !pool_of(tier).goes_first(tree_.block_of(node, tier))) is_kept = move_down(node, tier, copies);
  if (!tree_.is_node(node)) return;  // it hung below what had to go for it
  is_kept ? tree_.leave(node, tier) : tree_.forget(node);
}

bool BlockCache::move_down(NodeId node, Tier tier, std::vector<BlockCopy>& copies) {
  if (!uses_lower_tiers_) return false;
  for (size_t below = raw_tier(tier) + 1; below < kTiers; ++below) {
    const Tier to = kAllTiers[below];
    if (pool_of(to).n_available() == 0) continue;
    grow(copies, copies.size() + kTiers);
    const BlockId target = take(to, copies);
    if (tree_.is_node(node)) {
      plan_copy({tree_.block_of(node, tier), target, tier, to}, copies);
      tree_.settle(node, to, target);
    }
    pool_of(to).drop_reference(target);
    return true;
  }
  return false;
}

// There is room for it in `copies`. What goes down leaves its block to the next at once: the order of copies protects
// it.
void BlockCache::plan_copy(const BlockCopy& copy, std::vector<BlockCopy>& copies) {
  copies.push_back(copy);
  ++(copy.to_tier == Tier::kDevice ? n_moved_up_ : n_moved_down_);
  if (const auto [tier, block] = below_device(copy); block != BlockId::kNone) pool_of(tier).begin_transfer(block);
}

void BlockCache::transferred(std::span<const BlockCopy> copies) {
  for (const BlockCopy& copy : copies) {
    if (const auto [tier, block] = below_device(copy); block != BlockId::kNone) pool_of(tier).end_transfer(block);
  }
  states_.transferred();
}

// Appends the node's block to the table, from a lower tier if need be. False: there is no room for it on the device.
bool BlockCache::append(NodeId node, BlockTable& table, std::vector<BlockCopy>& copies) {
  if (const BlockId block = tree_.block_of(node, Tier::kDevice); block != BlockId::kNone) {
    device().add_reference(block);
    table.push_back(block);
    return true;
  }
  if (device().n_available() == 0) return false;
  const Tier from = tree_.tier_of(node);
  const BlockId target = take(Tier::kDevice, copies);
  plan_copy({tree_.block_of(node, from), target, from, Tier::kDevice}, copies);
  tree_.settle(node, Tier::kDevice, target);
  table.push_back(target);
  return true;
}

// ---- tables --------------------------------------------------------------------------------------------------------

// The nodes of the longest known beginning of `tokens`, and how many tokens they hold.
int32_t BlockCache::find_blocks(ScopeId scope, std::span<const TokenId> tokens) {
  path_.clear();
  if (!options_.prefix_cache) return 0;
  int32_t n_matched = tree_.match(scope, tokens, options_.partial_step, path_);
  const auto is_down = [&](NodeId node) { return tree_.block_of(node, Tier::kDevice) == BlockId::kNone; };
  const auto first = uses_lower_tiers_ ? path_.end() : std::ranges::find_if(path_, is_down);
  if (first != path_.end()) {
    path_.erase(first, path_.end());
    n_matched = static_cast<int32_t>(path_.size()) * options_.block_len;
  }
  return n_matched;
}

// The same of those that one can go on after.
int32_t BlockCache::find_path(ScopeId scope, std::span<const TokenId> tokens) {
  const int32_t n_matched = n_agreed_ = find_blocks(scope, tokens);
  if (!states_.keeps_states()) return n_matched;
  return cut_path_to_state(scope, tokens.first(static_cast<size_t>(n_matched)));
}

// Cuts the path, which holds these tokens, to those that one can go on after. The last block may be another one that
// begins as this one does.
int32_t BlockCache::cut_path_to_state(ScopeId scope, std::span<const TokenId> tokens) {
  const auto block_len = static_cast<size_t>(options_.block_len);
  while (!path_.empty()) {
    const size_t i = path_.size() - 1;
    const NodeId parent = i == 0 ? NodeId::kNone : path_[i - 1];
    const auto [node, n] = tree_.longest_state(scope, parent, tokens.subspan(i * block_len));
    if (n > 0 && (uses_lower_tiers_ || tree_.block_of(node, Tier::kDevice) != BlockId::kNone)) {
      path_[i] = node;
      return static_cast<int32_t>(i * block_len) + n;
    }
    path_.pop_back();
    tokens = tokens.first(i * block_len);
  }
  return 0;
}

int32_t BlockCache::match(ScopeId scope, std::span<const TokenId> tokens, BlockTable& table,
                          std::vector<BlockCopy>& copies) {
  return take_path(find_path(scope, tokens), table, copies);
}

int32_t BlockCache::match_blocks(ScopeId scope, std::span<const TokenId> tokens, BlockTable& table,
                                 std::vector<BlockCopy>& copies) {
  const int32_t n_matched = find_blocks(scope, tokens) / options_.block_len * options_.block_len;
  path_.resize(static_cast<size_t>(n_blocks_for(n_matched)));
  return take_path(n_matched, table, copies);
}

// Fills the empty table with the blocks of path_, which hold n_matched tokens. Returns how many there was room for.
int32_t BlockCache::take_path(int32_t n_matched, BlockTable& table, std::vector<BlockCopy>& copies) {
  CHECK(table.empty());
  if (path_.empty()) return 0;
  const auto is_up = [&](NodeId node) { return tree_.block_of(node, Tier::kDevice) != BlockId::kNone; };
  grow(table, path_.size());
  if (!std::ranges::all_of(path_, is_up)) grow(copies, copies.size() + path_.size() * kTiers);
  // All that was found is held before anything moves, so that bringing one block up costs none of the others.
  const auto pin = [&](NodeId node) {
    pool_of(tree_.tier_of(node)).begin_transfer(tree_.block_of(node, tree_.tier_of(node)));
  };
  std::ranges::for_each(path_, pin);
  bool fits = true;
  for (const NodeId node : path_) {
    const Tier tier = tree_.tier_of(node);
    fits = fits && append(node, table, copies);
    pool_of(tier).end_transfer(tree_.block_of(node, tier));
  }
  return fits ? n_matched : static_cast<int32_t>(table.size()) * options_.block_len;
}

int32_t BlockCache::match(ScopeId scope, std::span<const TokenId> tokens, BlockTable& table, StateTable& states,
                          std::vector<BlockCopy>& copies) {
  CHECK(states.empty());
  const int32_t n_matched = match(scope, tokens, table, copies);
  return states_.keeps_states() ? rewind(table, states, n_matched) : n_matched;
}

int32_t BlockCache::n_known(ScopeId scope, std::span<const TokenId> tokens) try {
  return find_path(scope, tokens);
} catch (const std::bad_alloc&) {
  return 0;
}

void BlockCache::fork(const BlockTable& from, int32_t n_tokens, BlockTable& table) {
  CHECK(table.empty() && n_blocks_for(n_tokens) <= static_cast<int32_t>(from.size()));
  table.assign(from.begin(), from.begin() + n_blocks_for(n_tokens));
  for (const BlockId block : table) {
    if (block != BlockId::kNone) device().add_reference(block);
  }
}

int32_t BlockCache::fork(const BlockTable& from, const StateTable& states_from, int32_t n_tokens, BlockTable& table,
                         StateTable& states) {
  CHECK(states.empty());
  if (!states_.keeps_states()) {
    fork(from, n_tokens, table);
    return n_tokens;
  }
  grow(states, 1);
  const int32_t n = find_resume_point(from, states_from, n_tokens);
  fork(from, n, table);
  if (const StateId state = state_after(states_from, n); state != StateId::kNone) {
    states_.add_reference(state);
    states.push_back({n, state});
  }
  return rewind(table, states, n);
}

bool BlockCache::must_copy(const BlockTable& table, int32_t n_written, int32_t n_wanted) const {
  const size_t first = static_cast<size_t>(n_written / options_.block_len);
  if (n_wanted <= n_written || first >= table.size()) return false;
  const BlockId block = table[first];
  if (pool().n_references(block) > 1) return true;
  const NodeId node = pool().node_of(block);
  return node != NodeId::kNone && n_written % options_.block_len < static_cast<int32_t>(tree_.tokens_of(node).size());
}

int32_t BlockCache::n_blocks_missing(const BlockTable& table, int32_t n_written, int32_t n_wanted) const {
  const int32_t n_added = std::max(0, n_blocks_for(n_wanted) - static_cast<int32_t>(table.size()));
  return n_added + must_copy(table, n_written, n_wanted);
}

bool BlockCache::reserve(BlockTable& table, int32_t n_written, int32_t n_wanted, std::vector<BlockCopy>& copies) {
  const bool is_copied = must_copy(table, n_written, n_wanted);
  const auto n_blocks = static_cast<size_t>(n_blocks_for(n_wanted));
  if (!is_copied && table.size() >= n_blocks) return true;  // a decode within its block
  if (n_blocks_missing(table, n_written, n_wanted) > pool().n_available()) return false;
  grow(table, n_blocks);
  if (is_copied) {
    BlockId& block = table[static_cast<size_t>(n_written / options_.block_len)];
    grow(copies, copies.size() + 1 + kTiers);
    const BlockId target = take(Tier::kDevice, copies);
    copies.push_back({block, target});
    // Released only now, so that it cannot be the block that was taken. Writes of its next holder in this step come
    // after this copy.
    device().drop_reference(block);
    block = target;
  }
  while (table.size() < n_blocks) table.push_back(take(Tier::kDevice, copies));
  return true;
}

int32_t BlockCache::publish(ScopeId scope, std::span<const TokenId> tokens, int32_t n_written, int32_t n_published,
                            BlockTable& table) {
  if (!options_.prefix_cache) return n_published;
  const auto len = static_cast<size_t>(options_.block_len);
  for (; n_published < n_written / options_.block_len; ++n_published) {
    const auto i = static_cast<size_t>(n_published);
    const std::optional<NodeId> parent = parent_at(i, table);
    if (!parent) continue;
    const NodeId node = tree_.publish(scope, *parent, tokens.subspan(i * len, len), table[i]);
    const BlockId known = node == NodeId::kNone ? table[i] : tree_.block_of(node, Tier::kDevice);
    if (known == table[i]) continue;
    device().add_reference(known);
    device().drop_reference(table[i]);
    table[i] = known;
  }
  return n_published;
}

NodeId BlockCache::publish_tail(ScopeId scope, std::span<const TokenId> tokens, int32_t n_written, int32_t n_published,
                                const BlockTable& table) {
  const int32_t n_tail = n_written % options_.block_len;
  const auto i = static_cast<size_t>(n_written / options_.block_len);
  if (!options_.prefix_cache || options_.partial_step <= 0 || n_tail == 0 ||
      n_published < n_written / options_.block_len)
    return NodeId::kNone;
  const std::optional<NodeId> parent = parent_at(i, table);
  if (!parent) return NodeId::kNone;
  return tree_.publish(scope, *parent,
                       tokens.subspan(static_cast<size_t>(n_written - n_tail), static_cast<size_t>(n_tail)), table[i]);
}

// The node that the table's i-th block hangs below; kNone: the scope; nothing: what stands before it is no node.
std::optional<NodeId> BlockCache::parent_at(size_t i, const BlockTable& table) const {
  if (i == 0) return NodeId::kNone;
  if (table[i - 1] == BlockId::kNone) return std::nullopt;
  const NodeId node = pool().node_of(table[i - 1]);
  return node == NodeId::kNone ? std::nullopt : std::optional(node);
}

void BlockCache::truncate(BlockTable& table, int32_t n_tokens) {
  const size_t n_kept = std::min(table.size(), static_cast<size_t>(n_blocks_for(n_tokens)));
  while (table.size() > n_kept) {
    if (table.back() != BlockId::kNone) device().drop_reference(table.back());
    table.pop_back();
  }
}

void BlockCache::release_before(int32_t n_tokens, int32_t n_published, BlockTable& table) {
  int32_t n_blocks = n_tokens / options_.block_len - 1;
  if (options_.prefix_cache) n_blocks = std::min(n_blocks, n_published - 1);
  // From the back, so that a tree's children are released before their parents, up to what is gone already.
  for (int32_t i = n_blocks - 1; i >= 0 && table[static_cast<size_t>(i)] != BlockId::kNone; --i) {
    device().drop_reference(table[static_cast<size_t>(i)]);
    table[static_cast<size_t>(i)] = BlockId::kNone;
  }
}

// ---- states --------------------------------------------------------------------------------------------------------

int32_t BlockCache::find_resume_point(const BlockTable& table, const StateTable& states, int32_t n_tokens) const {
  int32_t best = 0;
  for (const HeldState& held : states) {
    if (held.n_tokens <= n_tokens) best = std::max(best, held.n_tokens);
  }
  for (int32_t i = n_blocks_for(n_tokens) - 1; i >= 0 && (i + 1) * options_.block_len > best; --i) {
    if (static_cast<size_t>(i) >= table.size() || table[static_cast<size_t>(i)] == BlockId::kNone) continue;
    const NodeId node = pool().node_of(table[static_cast<size_t>(i)]);
    if (node == NodeId::kNone) continue;
    const int32_t begin = i * options_.block_len;
    if (const int32_t n = states_.longest(node, std::min(n_tokens - begin, options_.block_len)); n > 0)
      return std::max(best, begin + n);
  }
  return best;
}

// The table's own snapshot after so many tokens, if it is in no state of `states` yet. False: there is no room for it.
bool BlockCache::take_state(const BlockTable& table, int32_t n_tokens, StateTable& states) {
  if (state_after(states, n_tokens) != StateId::kNone) return true;
  const int32_t i = (n_tokens - 1) / options_.block_len;
  grow(states, states.size() + 1);
  const NodeId node = pool().node_of(table[static_cast<size_t>(i)]);
  const StateId state = states_.find(node, n_tokens - i * options_.block_len);
  if (state == StateId::kNone) return false;
  states.push_back({n_tokens, state});
  return true;
}

int32_t BlockCache::rewind(BlockTable& table, StateTable& states, int32_t n_tokens) {
  int32_t n = resume_point(table, states, n_tokens);
  while (states_.keeps_states() && n > 0 && !take_state(table, n, states)) n = resume_point(table, states, n - 1);
  truncate(table, n);
  keep_state(states, n);
  return n;
}

int32_t BlockCache::rewind_to_block(BlockTable& table, StateTable& states, int32_t n_tokens) {
  int32_t n = n_tokens / options_.block_len * options_.block_len;
  for (n = resume_point(table, states, n); n % options_.block_len != 0; n = resume_point(table, states, n))
    n = n / options_.block_len * options_.block_len;
  const int32_t rewound = rewind(table, states, n);
  return rewound == n ? n : rewind_to_block(table, states, rewound);
}

bool BlockCache::reserve_state(const StateTable& states, int32_t n_computed, int32_t n_tokens, StateTable& next) {
  if (const auto spare = std::ranges::find(next, 0, &HeldState::n_tokens); spare != next.end()) {
    spare->n_tokens = n_tokens;
    return true;
  }
  grow(next, next.size() + 1);
  StateId state = state_after(states, n_computed);
  if (state != StateId::kNone && states_.may_write(state)) {
    states_.add_reference(state);
  } else {
    if (states_.n_available() == 0) return false;
    state = states_.take();
  }
  next.push_back({n_tokens, state});
  return true;
}

bool BlockCache::reserve_spare_state(const StateTable& states, int32_t n_computed, StateTable& next) {
  const StateId state = state_after(states, n_computed);
  const bool has_one = (state != StateId::kNone && states_.may_write(state)) || state_after(next, 0) != StateId::kNone;
  return !states_.keeps_states() || has_one || reserve_state({}, 0, 0, next);
}

void BlockCache::hold_state(ScopeId scope, std::span<const TokenId> tokens, int32_t n_tokens, int32_t n_published,
                            const BlockTable& table, StateId state) {
  const int32_t n_tail = n_tokens % options_.block_len;
  if (!options_.prefix_cache || n_tokens == 0 || n_published < n_tokens / options_.block_len) return;
  const auto i = static_cast<size_t>((n_tokens - 1) / options_.block_len);
  NodeId node = NodeId::kNone;
  if (n_tail != 0) {
    node = publish_tail(scope, tokens, n_tokens, n_published, table);
  } else if (table[i] != BlockId::kNone) {
    node = pool().node_of(table[i]);
  }
  if (node != NodeId::kNone) states_.hold(node, n_tail == 0 ? options_.block_len : n_tail, state);
}

template <typename Drops>
void BlockCache::drop_states(StateTable& states, Drops drops) {
  for (const HeldState& held : states) {
    if (drops(held)) states_.drop_reference(held.state);
  }
  std::erase_if(states, drops);
}

void BlockCache::keep_state(StateTable& states, int32_t n_tokens) {
  drop_states(states, [n_tokens](const HeldState& held) { return held.n_tokens != n_tokens; });
}

void BlockCache::drop_states_before(StateTable& states, int32_t n_tokens) {
  drop_states(states, [n_tokens](const HeldState& held) { return held.n_tokens < n_tokens; });
}

void BlockCache::self_check() const {
  for (const BlockPool& pool : pools_) pool.self_check();
  states_.self_check();
  tree_.self_check();
}

}  // namespace ibid
