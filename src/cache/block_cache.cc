#include "cache/block_cache.h"

#include <algorithm>

#include "base/check.h"
#include "base/grow.h"

namespace ibid {

BlockCache::BlockCache(const BlockCacheOptions& options)
    : options_(options), pool_(options.n_blocks), tree_(pool_, options.block_len, options.hash) {}

BlockId BlockCache::take() {
  if (pool_.is_marked(pool_.front())) tree_.forget(pool_.front());
  return pool_.take();
}

int32_t BlockCache::match(ScopeId scope, std::span<const TokenId> tokens, BlockTable& table) {
  CHECK(table.empty());
  if (!options_.prefix_cache) return 0;
  return tree_.match(scope, tokens, options_.partial_step, table);
}

void BlockCache::fork(const BlockTable& from, int32_t n_tokens, BlockTable& table) {
  CHECK(table.empty() && n_blocks_for(n_tokens) <= static_cast<int32_t>(from.size()));
  table.assign(from.begin(), from.begin() + n_blocks_for(n_tokens));
  for (const BlockId block : table) {
    if (block != BlockId::kNone) pool_.add_reference(block);
  }
}

bool BlockCache::must_copy(const BlockTable& table, int32_t n_written, int32_t n_wanted) const {
  const size_t first = static_cast<size_t>(n_written / options_.block_len);
  if (n_wanted <= n_written || first >= table.size()) return false;
  return pool_.n_references(table[first]) > 1 || pool_.is_marked(table[first]);
}

int32_t BlockCache::n_blocks_missing(const BlockTable& table, int32_t n_written, int32_t n_wanted) const {
  const int32_t n_added = std::max(0, n_blocks_for(n_wanted) - static_cast<int32_t>(table.size()));
  return n_added + must_copy(table, n_written, n_wanted);
}

bool BlockCache::reserve(BlockTable& table, int32_t n_written, int32_t n_wanted, std::vector<BlockCopy>& copies) {
  if (n_blocks_missing(table, n_written, n_wanted) > pool_.n_available()) return false;
  const auto n_blocks = static_cast<size_t>(n_blocks_for(n_wanted));
  grow(table, n_blocks);
  if (must_copy(table, n_written, n_wanted)) {
    BlockId& block = table[static_cast<size_t>(n_written / options_.block_len)];
    copies.push_back({block, BlockId::kNone});
    copies.back().to = take();
    // Released only now, so that it cannot be the block that was taken. Whoever takes it later in this step writes
    // after this copy.
    pool_.drop_reference(block);
    block = copies.back().to;
  }
  while (table.size() < n_blocks) table.push_back(take());
  return true;
}

int32_t BlockCache::publish(ScopeId scope, std::span<const TokenId> tokens, int32_t n_written, int32_t n_published,
                            BlockTable& table) {
  if (!options_.prefix_cache) return n_published;
  const int32_t len = options_.block_len;
  for (; n_published < n_written / len; ++n_published) {
    const size_t i = static_cast<size_t>(n_published);
    const BlockId parent = i == 0 ? BlockId::kNone : table[i - 1];
    table[i] =
        tree_.publish(scope, parent, tokens.subspan(i * static_cast<size_t>(len), static_cast<size_t>(len)), table[i]);
  }
  return n_published;
}

void BlockCache::truncate(BlockTable& table, int32_t n_tokens) {
  const size_t n_kept = std::min(table.size(), static_cast<size_t>(n_blocks_for(n_tokens)));
  while (table.size() > n_kept) {
    if (table.back() != BlockId::kNone) pool_.drop_reference(table.back());
    table.pop_back();
  }
}

void BlockCache::release_before(int32_t n_tokens, int32_t n_published, BlockTable& table) {
  int32_t n_blocks = n_tokens / options_.block_len - 1;
  if (options_.prefix_cache) n_blocks = std::min(n_blocks, n_published - 1);
  // From the back, so that a tree's children are released before their parents, up to what is gone already.
  for (int32_t i = n_blocks - 1; i >= 0 && table[static_cast<size_t>(i)] != BlockId::kNone; --i) {
    pool_.drop_reference(table[static_cast<size_t>(i)]);
    table[static_cast<size_t>(i)] = BlockId::kNone;
  }
}

void BlockCache::self_check() const {
  pool_.self_check();
  tree_.self_check();
}

}  // namespace ibid
