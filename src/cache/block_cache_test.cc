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

TEST(BlockCache, FirstWriterOfASharedBlockCopiesItAndTheLastWritesInPlace) {
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

// ---- states: of a model that can go on at certain tokens only
// --------------------------------------------------------

// A cache whose sequences compute, hold and leave like an engine's.
struct StatefulCache {
  explicit StatefulCache(int32_t n_states, int32_t n_blocks = 16, int32_t n_host_states = 0)
      : cache({.n_blocks = n_blocks, .n_states = n_states, .n_host_states = n_host_states, .block_len = 4}) {
    scope = cache.tree().hold({});
  }
  struct Holder {
    BlockTable blocks;
    StateTable states;
    int32_t n_computed = 0, n_published = 0;
  };
  // Computes up to n; the states after `held` tokens become snapshots. False: there was no room.
  bool compute(Holder& t, const std::vector<TokenId>& tokens, int32_t n, std::vector<int32_t> held = {}) {
    StateTable next;
    if (!cache.reserve(t.blocks, t.n_computed, n, copies) || !cache.reserve_state(t.states, t.n_computed, n, next))
      return false;
    for (const int32_t at : held) {
      const bool is_reserved = at == n || cache.reserve_state({}, 0, at, next);
      EXPECT_TRUE(is_reserved);
    }
    cache.release(t.states);
    t.states = next;
    t.n_computed = n;
    t.n_published = cache.publish(scope, tokens, n, t.n_published, t.blocks);
    for (const int32_t at : held)
      cache.hold_state(scope, tokens, at, t.n_published, t.blocks, state_after(t.states, at));
    cache.keep_state(t.states, n);
    return true;
  }
  void leave(Holder& t) {
    cache.release(t.blocks);
    cache.release(t.states);
    cache.transferred(copies);
    copies.clear();
    cache.self_check();
  }
  Holder find(const std::vector<TokenId>& tokens) {
    Holder t;
    t.n_computed = cache.match(scope, tokens, t.blocks, t.states, copies);
    return t;
  }
  BlockCache cache;
  ScopeId scope = ScopeId::kNone;
  std::vector<BlockCopy> copies;
};

TEST(ResumePoint, OfAttentionAloneIsEveryToken) {
  const BlockCache cache({.n_blocks = 4, .block_len = 4});
  for (const int32_t n : {0, 1, 7, 16}) EXPECT_EQ(cache.resume_point({}, {}, n), n);
}

TEST(ResumePoint, IsTheLastTokenAfterWhichThereIsAState) {
  StatefulCache c(4);
  StatefulCache::Holder t;
  ASSERT_TRUE(c.compute(t, counting(11), 11, {6}));
  EXPECT_EQ(c.cache.resume_point(t.blocks, t.states, 11), 11);
  EXPECT_EQ(c.cache.resume_point(t.blocks, t.states, 10), 6);  // its blocks' nodes have it
  EXPECT_EQ(c.cache.resume_point(t.blocks, t.states, 5), 0);
  EXPECT_EQ(c.cache.resume_point({}, t.states, 10), 0);
  EXPECT_EQ(c.cache.rewind(t.blocks, t.states, 9), 6);
  EXPECT_EQ(t.blocks.size(), 2u);
  ASSERT_EQ(t.states.size(), 1u);
  EXPECT_EQ(t.states[0].n_tokens, 6);
  t.n_computed = 6;
  c.leave(t);
}

TEST(ResumePoint, AtABlocksBeginIsOneOrNone) {
  StatefulCache c(4);
  StatefulCache::Holder t;
  ASSERT_TRUE(c.compute(t, counting(15), 15, {4, 10}));
  EXPECT_EQ(c.cache.rewind_to_block(t.blocks, t.states, 14), 4);
  EXPECT_EQ(c.cache.rewind_to_block(t.blocks, t.states, 3), 0);
  EXPECT_TRUE(t.blocks.empty() && t.states.empty());
  c.leave(t);
}

TEST(States, AMatchEndsWhereASequenceCanGoOn) {
  StatefulCache c(4);
  StatefulCache::Holder t;
  ASSERT_TRUE(c.compute(t, counting(11), 11, {6, 8}));
  c.leave(t);
  StatefulCache::Holder whole = c.find(counting(11));
  EXPECT_EQ(whole.n_computed, 8);
  EXPECT_EQ(whole.blocks.size(), 2u);
  EXPECT_EQ(whole.states.size(), 1u);
  c.leave(whole);
  StatefulCache::Holder part = c.find(counting(7));
  EXPECT_EQ(part.n_computed, 6);
  c.leave(part);
  EXPECT_EQ(c.cache.n_known(c.scope, counting(7)), 6);
  EXPECT_EQ(c.cache.n_known(c.scope, counting(5)), 0);
}

TEST(States, WithoutASnapshotNothingIsFound) {
  StatefulCache c(4);
  StatefulCache::Holder t;
  ASSERT_TRUE(c.compute(t, counting(11), 11));
  c.leave(t);
  StatefulCache::Holder again = c.find(counting(11));
  EXPECT_EQ(again.n_computed, 0);
  EXPECT_TRUE(again.blocks.empty() && again.states.empty());
}

TEST(States, AStateThatTheTreeHoldsIsWrittenNoMore) {
  StatefulCache c(4);
  StatefulCache::Holder t;
  ASSERT_TRUE(c.compute(t, counting(6), 6, {6}));
  const StateId held = t.states[0].state;
  ASSERT_TRUE(c.compute(t, counting(7), 7));
  EXPECT_NE(t.states[0].state, held);
  const StateId own = t.states[0].state;
  ASSERT_TRUE(c.compute(t, counting(8), 8));
  EXPECT_EQ(t.states[0].state, own);  // not shared: in place
  c.leave(t);
}

TEST(States, AForkSharesTheStateAndBothWriteToOthers) {
  StatefulCache c(4);
  StatefulCache::Holder a, b;
  ASSERT_TRUE(c.compute(a, counting(6), 6));
  b.n_computed = c.cache.fork(a.blocks, a.states, 6, b.blocks, b.states);
  EXPECT_EQ(b.n_computed, 6);
  const StateId shared = a.states[0].state;
  EXPECT_EQ(b.states[0].state, shared);
  ASSERT_TRUE(c.compute(b, counting(7), 7));
  EXPECT_NE(b.states[0].state, shared);
  ASSERT_TRUE(c.compute(a, counting(7), 7));
  EXPECT_EQ(a.states[0].state, shared);  // the last one writes in place
  StatefulCache::Holder late;
  late.n_computed = c.cache.fork(a.blocks, a.states, 6, late.blocks, late.states);
  EXPECT_EQ(late.n_computed, 0);  // there was a state once
  EXPECT_TRUE(late.blocks.empty());
  c.leave(a);
  c.leave(b);
}

TEST(States, AForkTakesTheStateThatTheTreeHolds) {
  StatefulCache c(4);
  StatefulCache::Holder a, b;
  ASSERT_TRUE(c.compute(a, counting(6), 6, {6}));
  ASSERT_TRUE(c.compute(a, counting(7), 7));
  b.n_computed = c.cache.fork(a.blocks, a.states, 6, b.blocks, b.states);
  EXPECT_EQ(b.n_computed, 6);
  ASSERT_EQ(b.states.size(), 1U);
  EXPECT_EQ(b.states[0].n_tokens, 6);
  EXPECT_NE(b.states[0].state, a.states[0].state);
  c.leave(a);
  c.leave(b);
}

TEST(States, ASpareOneIsTakenBeforeOthersTakeThemAll) {
  StatefulCache c(3);
  StatefulCache::Holder t;
  ASSERT_TRUE(c.compute(t, counting(6), 6, {6}));
  StateTable next;
  ASSERT_TRUE(c.cache.reserve_spare_state(t.states, 6, next));
  ASSERT_EQ(next.size(), 1u);
  ASSERT_TRUE(c.cache.reserve_spare_state(t.states, 6, next));
  EXPECT_EQ(next.size(), 1u);
  const StateId spare = next[0].state, other = c.cache.states().take();
  ASSERT_TRUE(c.cache.reserve_state(t.states, 6, 7, next));
  EXPECT_EQ(next, (StateTable{{7, spare}}));
  StateTable own = {{7, spare}}, none;
  EXPECT_FALSE(c.cache.reserve_spare_state(t.states, 6, none));
  ASSERT_TRUE(c.cache.reserve_spare_state(own, 7, none));  // no other reference: it is written in place
  EXPECT_TRUE(none.empty());
  c.cache.states().drop_reference(other);
  c.cache.release(next);
  c.leave(t);
}

TEST(States, AreEvictedApartFromBlocks) {
  StatefulCache c(2);
  StatefulCache::Holder t;
  ASSERT_TRUE(c.compute(t, counting(8), 8, {8}));
  c.leave(t);
  StatefulCache::Holder a, b;
  ASSERT_TRUE(c.compute(a, counting(3, 50), 3));
  EXPECT_EQ(c.cache.n_known(c.scope, counting(8)), 8);
  ASSERT_TRUE(c.compute(b, counting(3, 60), 3));  // takes its slot
  EXPECT_EQ(c.cache.n_known(c.scope, counting(8)), 0);
  EXPECT_EQ(c.cache.tree().n_nodes(), 2);  // the blocks are there
  StatefulCache::Holder d;
  EXPECT_FALSE(c.compute(d, counting(1, 70), 1));
  c.leave(a);
  c.leave(b);
  c.cache.release(d.blocks);
}

TEST(States, GoWithTheirBlocks) {
  StatefulCache c(4, 2);
  StatefulCache::Holder t;
  ASSERT_TRUE(c.compute(t, counting(8), 8, {8}));
  c.leave(t);
  StatefulCache::Holder other;
  ASSERT_TRUE(c.compute(other, counting(5, 50), 5));
  EXPECT_EQ(c.cache.states().n_snapshots(), 0);
  c.leave(other);
}

TEST(States, StayWhereAWholeBlockTakesTheTailsPlace) {
  StatefulCache c(4);
  StatefulCache::Holder t;
  ASSERT_TRUE(c.compute(t, counting(6), 6, {6}));
  c.cache.publish_tail(c.scope, counting(6), 6, t.n_published, t.blocks);
  ASSERT_TRUE(c.compute(t, counting(8), 8));
  c.leave(t);
  EXPECT_EQ(c.cache.n_known(c.scope, counting(8)), 6);
}

// The prompt of an answer that is given again with another noise: the block in which it ends goes on in many ways.
TEST(States, AreFoundOnSiblingsThatBeginWithTheSameTokens) {
  StatefulCache c(8);
  for (const int32_t way : {90, 40, 60, 20}) {
    std::vector<TokenId> tokens = counting(6);
    tokens.push_back(TokenId{way});
    tokens.push_back(TokenId{way + 1});
    StatefulCache::Holder t = c.find(tokens);
    EXPECT_EQ(t.n_computed, way == 90 ? 0 : 6);
    t.n_published = t.n_computed / 4;
    ASSERT_TRUE(c.compute(t, tokens, 8, way == 90 ? std::vector<int32_t>{6} : std::vector<int32_t>{}));
    c.leave(t);
  }
  EXPECT_EQ(c.cache.states().n_snapshots(), 1);
}

TEST(States, ComeUpFromTheHost) {
  StatefulCache c(1, 16, 2);
  StatefulCache::Holder t;
  ASSERT_TRUE(c.compute(t, counting(8), 8, {8}));
  c.leave(t);
  StatefulCache::Holder other;
  ASSERT_TRUE(c.compute(other, counting(3, 50), 3));
  ASSERT_EQ(c.cache.state_copies().size(), 1u);
  EXPECT_EQ(c.cache.state_copies()[0].to_tier, Tier::kHost);
  EXPECT_EQ(c.cache.n_known(c.scope, counting(8)), 8);
  StatefulCache::Holder early = c.find(counting(8));  // no room for it on the device
  EXPECT_EQ(early.n_computed, 0);
  EXPECT_TRUE(early.blocks.empty());
  c.leave(other);
  StatefulCache::Holder found = c.find(counting(8));
  EXPECT_EQ(found.n_computed, 8);
  ASSERT_EQ(c.cache.state_copies().size(), 1u);
  EXPECT_EQ(c.cache.state_copies()[0].to_tier, Tier::kDevice);
  c.leave(found);
}

// Two texts of three blocks each leave the pool; the second, without a snapshot, is the younger one.
TEST(States, BlocksThatNothingCanGoOnFromAreEvictedFirst) {
  StatefulCache c(4);
  StatefulCache::Holder with, without;
  ASSERT_TRUE(c.compute(with, counting(12), 12, {12}));
  c.leave(with);
  ASSERT_TRUE(c.compute(without, counting(12, 100), 12));
  c.leave(without);
  BlockTable taken;
  const int32_t n_free = c.cache.pool().n_free();
  for (int32_t n = 1; n <= 3; ++n) {  // what hung below it first, then what it hung below
    ASSERT_TRUE(c.cache.reserve(taken, 0, (n_free + n) * 4, c.copies));
    c.cache.self_check();
    EXPECT_EQ(c.cache.n_known(c.scope, counting(12)), 12) << n;
    BlockTable left;
    EXPECT_EQ(c.cache.match_blocks(c.scope, counting(12, 100), left, c.copies), 12 - 4 * n);
    c.cache.release(left);
  }
  ASSERT_TRUE(c.cache.reserve(taken, 0, (n_free + 4) * 4, c.copies));
  EXPECT_EQ(c.cache.n_known(c.scope, counting(12)), 0);  // its last block had the snapshot
  c.cache.release(taken);
  c.cache.self_check();
}

TEST(States, BlocksGoWhenTheirLastSnapshotHasGone) {
  StatefulCache c(1);
  StatefulCache::Holder old, young;
  ASSERT_TRUE(c.compute(old, counting(8), 8, {8}));
  c.leave(old);
  ASSERT_TRUE(c.compute(young, counting(8, 100), 8, {8}));  // takes the one slot
  c.leave(young);
  BlockTable taken;
  ASSERT_TRUE(c.cache.reserve(taken, 0, (c.cache.pool().n_free() + 2) * 4, c.copies));
  EXPECT_EQ(c.cache.n_known(c.scope, counting(8, 100)), 8);
  c.cache.release(taken);
  c.cache.self_check();
}

TEST(States, OfAttentionAloneTheLeastRecentlyReleasedIsEvictedFirst) {
  BlockCache cache({.n_blocks = 6, .block_len = 4});
  const ScopeId scope = cache.tree().hold({});
  std::vector<BlockCopy> copies;
  const std::vector<int> texts = {0, 100, 200};
  for (const int from : texts) {
    BlockTable table;
    ASSERT_TRUE(cache.reserve(table, 0, 8, copies));
    cache.publish(scope, counting(8, from), 8, 0, table);
    cache.release(table);
  }
  BlockTable taken;
  for (int32_t n = 1; n <= 6; ++n) {  // a text's last block before its first
    ASSERT_TRUE(cache.reserve(taken, 0, 4 * n, copies));
    for (int i = 0; i < 3; ++i) {
      const int32_t n_gone = std::clamp(n - 2 * i, 0, 2);
      EXPECT_EQ(cache.n_known(scope, counting(8, texts[static_cast<size_t>(i)])), 8 - 4 * n_gone) << n << i;
    }
  }
  cache.release(taken);
  cache.self_check();
  cache.tree().let_go(scope);
}

}  // namespace
}  // namespace ibid
