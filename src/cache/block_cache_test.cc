#include "cache/block_cache.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <vector>

namespace ibid {
namespace {

std::vector<TokenId> counting(int n, int from = 0) {
  std::vector<TokenId> out;
  for (int i = 0; i < n; ++i) out.push_back(TokenId{from + i});
  return out;
}

TEST(BlockCache, AListOfTokensNeedsItsLengthOverBBlocksRoundedUp) {
  BlockCache cache({.n_blocks = 4, .block_len = 16});
  EXPECT_EQ(cache.n_blocks_for(0), 0);
  EXPECT_EQ(cache.n_blocks_for(1), 1);
  EXPECT_EQ(cache.n_blocks_for(16), 1);
  EXPECT_EQ(cache.n_blocks_for(17), 2);
}

TEST(BlockCache, ReserveAddsBlocksOnlyWherePositionsNeedThem) {
  BlockCache cache({.n_blocks = 4, .block_len = 4});
  BlockTable table;
  std::vector<BlockCopy> copies;
  ASSERT_TRUE(cache.reserve(table, 0, 3, copies));
  EXPECT_EQ(table, (BlockTable{BlockId{0}}));
  ASSERT_TRUE(cache.reserve(table, 3, 4, copies));
  EXPECT_EQ(table.size(), 1u);
  ASSERT_TRUE(cache.reserve(table, 4, 5, copies));
  EXPECT_EQ(table, (BlockTable{BlockId{0}, BlockId{1}}));
  EXPECT_TRUE(copies.empty());
}

TEST(BlockCache, ReserveIsAllOrNothing) {
  BlockCache cache({.n_blocks = 2, .block_len = 4});
  BlockTable table;
  std::vector<BlockCopy> copies;
  EXPECT_FALSE(cache.reserve(table, 0, 9, copies));
  EXPECT_TRUE(table.empty());
  EXPECT_EQ(cache.pool().n_free(), 2);
}

// Row P3's example: blocks of 16, A = blocks [12, 7, 34, 19], B shares the first two (32 tokens) and goes its own way.
TEST(BlockCache, AForkAtABlocksEdgeSharesWholeBlocksAndCopiesNothing) {
  BlockCache cache({.n_blocks = 8, .block_len = 16});
  BlockTable a, b;
  std::vector<BlockCopy> copies;
  ASSERT_TRUE(cache.reserve(a, 0, 64, copies));
  cache.fork(a, 32, b);
  ASSERT_TRUE(cache.reserve(b, 32, 40, copies));
  EXPECT_TRUE(copies.empty());
  EXPECT_EQ(b[0], a[0]);
  EXPECT_EQ(b[1], a[1]);
  EXPECT_NE(b[2], a[2]);
  EXPECT_EQ(cache.pool().n_references(a[0]), 2);
  EXPECT_EQ(cache.pool().n_references(a[2]), 1);
  EXPECT_EQ(cache.pool().n_shared(), 2);
}

TEST(BlockCache, WhoeverWritesToASharedBlockFirstCopiesItAndTheLastOneWritesInPlace) {
  BlockCache cache({.n_blocks = 8, .block_len = 4});
  BlockTable a, b;
  std::vector<BlockCopy> copies;
  ASSERT_TRUE(cache.reserve(a, 0, 6, copies));
  cache.fork(a, 6, b);
  EXPECT_EQ(a, b);
  ASSERT_TRUE(cache.reserve(b, 6, 7, copies));
  ASSERT_EQ(copies.size(), 1u);
  EXPECT_EQ(copies[0], (BlockCopy{a[1], b[1]}));
  EXPECT_NE(a[1], b[1]);
  copies.clear();
  ASSERT_TRUE(cache.reserve(a, 6, 7, copies));
  EXPECT_TRUE(copies.empty());
  EXPECT_EQ(cache.pool().n_references(a[1]), 1);
}

TEST(BlockCache, APublishedBlockIsNeverWrittenAgain) {
  BlockCache cache({.n_blocks = 8, .block_len = 4});
  const ScopeId scope = cache.tree().hold({});
  BlockTable a;
  std::vector<BlockCopy> copies;
  const auto tokens = counting(8);
  ASSERT_TRUE(cache.reserve(a, 0, 8, copies));
  cache.publish(scope, tokens, 8, 0, a);
  const BlockId published = a[1];
  cache.truncate(a, 6);  // two rejected drafts
  ASSERT_TRUE(cache.reserve(a, 6, 8, copies));
  ASSERT_EQ(copies.size(), 1u);
  EXPECT_EQ(copies[0].from, published);
  EXPECT_NE(a[1], published);
  cache.release(a);
  EXPECT_EQ(cache.match(scope, tokens, a, copies), 8);
  EXPECT_EQ(a[1], published);
  cache.release(a);
}

TEST(BlockCache, ACopyNeedsRoomToo) {
  BlockCache cache({.n_blocks = 2, .block_len = 4});
  BlockTable a, b;
  std::vector<BlockCopy> copies;
  ASSERT_TRUE(cache.reserve(a, 0, 6, copies));
  cache.fork(a, 6, b);
  EXPECT_FALSE(cache.reserve(b, 6, 7, copies));
  EXPECT_TRUE(copies.empty());
  EXPECT_EQ(a, b);
  cache.release(a);
  EXPECT_TRUE(cache.reserve(b, 6, 7, copies));
  EXPECT_TRUE(copies.empty());
}

TEST(BlockCache, TruncationFreesWholeBlocksAndCopiesNothing) {
  BlockCache cache({.n_blocks = 8, .block_len = 4});
  BlockTable a;
  std::vector<BlockCopy> copies;
  ASSERT_TRUE(cache.reserve(a, 0, 20, copies));
  cache.truncate(a, 9);
  EXPECT_EQ(a.size(), 3u);
  EXPECT_EQ(cache.pool().n_free(), 5);
  cache.truncate(a, 30);
  EXPECT_EQ(a.size(), 3u);
  cache.truncate(a, 8);
  EXPECT_EQ(a.size(), 2u);
}

TEST(BlockCache, BlocksBeforeAWindowAreGivenBackOnceAndTheTableKeepsItsPlaces) {
  BlockCache cache({.n_blocks = 8, .block_len = 4, .prefix_cache = false});
  BlockTable a, b;
  std::vector<BlockCopy> copies;
  ASSERT_TRUE(cache.reserve(a, 0, 24, copies));
  const BlockTable before = a;
  cache.release_before(15, 0, a);  // positions 0..14 are behind; block 2 is kept for safety
  EXPECT_EQ(a, (BlockTable{BlockId::kNone, BlockId::kNone, before[2], before[3], before[4], before[5]}));
  EXPECT_EQ(cache.pool().n_free(), 4);
  cache.release_before(16, 0, a);
  EXPECT_EQ(cache.pool().n_free(), 5);
  cache.release_before(-3, 0, a);
  cache.fork(a, 22, b);
  EXPECT_EQ(b[0], BlockId::kNone);
  EXPECT_EQ(cache.pool().n_shared(), 3);
  cache.release(a);
  cache.release(b);
  EXPECT_EQ(cache.pool().n_free(), 8);
}

TEST(BlockCache, TheLastPublishedBlockStaysBeforeAWindow) {
  BlockCache cache({.n_blocks = 8, .block_len = 4});
  const ScopeId scope = cache.tree().hold({});
  BlockTable a;
  std::vector<BlockCopy> copies;
  const auto tokens = counting(24);
  ASSERT_TRUE(cache.reserve(a, 0, 24, copies));
  int32_t n_published = cache.publish(scope, tokens, 12, 0, a);
  cache.release_before(24, n_published, a);
  EXPECT_EQ(a[1], BlockId::kNone);
  EXPECT_NE(a[2], BlockId::kNone);
  n_published = cache.publish(scope, tokens, 24, n_published, a);
  EXPECT_EQ(cache.tree().n_nodes(), 6);
  cache.release(a);
  EXPECT_EQ(cache.match(scope, tokens, a, copies), 24);
  cache.release(a);
  cache.self_check();
}

TEST(BlockCache, PartialReuseStopsAtTheEdgeOfAGroup) {
  BlockCache cache({.n_blocks = 8, .block_len = 16, .partial_step = 4});
  const ScopeId scope = cache.tree().hold({});
  BlockTable a;
  std::vector<BlockCopy> copies;
  ASSERT_TRUE(cache.reserve(a, 0, 32, copies));
  cache.publish(scope, counting(32), 32, 0, a);
  BlockTable b;
  EXPECT_EQ(cache.match(scope, counting(23), b, copies), 20);
  EXPECT_EQ(b.size(), 2u);
  cache.release(b);
  EXPECT_EQ(cache.match(scope, counting(19), b, copies), 16);
  EXPECT_EQ(b.size(), 1u);
  cache.release(b);
  cache.release(a);
}

TEST(BlockCache, WithoutThePrefixCacheNothingIsFound) {
  BlockCache cache({.n_blocks = 8, .block_len = 4, .prefix_cache = false});
  const ScopeId scope = cache.tree().hold({});
  BlockTable a, b;
  std::vector<BlockCopy> copies;
  ASSERT_TRUE(cache.reserve(a, 0, 8, copies));
  EXPECT_EQ(cache.publish(scope, counting(8), 8, 0, a), 0);
  EXPECT_EQ(cache.match(scope, counting(8), b, copies), 0);
  cache.release(a);
  EXPECT_EQ(cache.pool().n_free(), 8);
}

// Row P4: at most B - 1 slots of a table hold nothing.
TEST(BlockCache, ATableWastesLessThanOneBlock) {
  for (const int32_t len : {8, 16, 32}) {
    BlockCache cache({.n_blocks = 64, .block_len = len});
    for (int32_t n = 1; n <= 200; ++n) {
      BlockTable table;
      std::vector<BlockCopy> copies;
      ASSERT_TRUE(cache.reserve(table, 0, n, copies));
      EXPECT_LE(static_cast<int32_t>(table.size()) * len - n, len - 1);
      cache.release(table);
    }
  }
}

}  // namespace
}  // namespace ibid
