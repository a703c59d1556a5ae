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
      tree_(pools_, options.block_len, options.hash) {
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
  if (!is_kept) is_kept = move_down(node, tier, copies);
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
int32_t BlockCache::find_path(ScopeId scope, std::span<const TokenId> tokens) {
  path_.clear();
  if (!options_.prefix_cache) return 0;
  const int32_t n_matched = tree_.match(scope, tokens, options_.partial_step, path_);
  if (uses_lower_tiers_) return n_matched;
  const auto is_down = [&](NodeId node) { return tree_.block_of(node, Tier::kDevice) == BlockId::kNone; };
  const auto first = std::ranges::find_if(path_, is_down);
  if (first == path_.end()) return n_matched;
  path_.erase(first, path_.end());
  return static_cast<int32_t>(path_.size()) * options_.block_len;
}

int32_t BlockCache::match(ScopeId scope, std::span<const TokenId> tokens, BlockTable& table,
                          std::vector<BlockCopy>& copies) {
  CHECK(table.empty());
  const int32_t n_matched = find_path(scope, tokens);
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
    // Released only now, so that it cannot be the block that was taken. Whoever takes it later in this step writes
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

void BlockCache::publish_tail(ScopeId scope, std::span<const TokenId> tokens, int32_t n_written, int32_t n_published,
                              const BlockTable& table) {
  const int32_t n_tail = n_written % options_.block_len;
  const auto i = static_cast<size_t>(n_written / options_.block_len);
  if (!options_.prefix_cache || options_.partial_step <= 0 || n_tail == 0 ||
      n_published < n_written / options_.block_len)
    return;
  if (const std::optional<NodeId> parent = parent_at(i, table)) {
    tree_.publish(scope, *parent, tokens.subspan(static_cast<size_t>(n_written - n_tail), static_cast<size_t>(n_tail)),
                  table[i]);
  }
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

void BlockCache::self_check() const {
  for (const BlockPool& pool : pools_) pool.self_check();
  tree_.self_check();
}

}  // namespace ibid
