#include "cache/block_pool.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace ibid {
namespace {

constexpr NodeId kSome{0};

TEST(BlockPool, StartsFreeAndGivesBlocksInOrder) {
  BlockPool pool(3);
  EXPECT_EQ(pool.n_free(), 3);
  EXPECT_EQ(pool.take(), BlockId{0});
  EXPECT_EQ(pool.take(), BlockId{1});
  EXPECT_EQ(pool.take(), BlockId{2});
  EXPECT_EQ(pool.front(), BlockId::kNone);
  EXPECT_EQ(pool.n_in_use(), 3);
}

TEST(BlockPool, TheLastReferenceFreesABlock) {
  BlockPool pool(2);
  const BlockId a = pool.take();
  pool.add_reference(a);
  EXPECT_EQ(pool.n_shared(), 1);
  pool.drop_reference(a);
  EXPECT_EQ(pool.n_in_use(), 1);
  EXPECT_EQ(pool.n_shared(), 0);
  pool.drop_reference(a);
  EXPECT_EQ(pool.n_free(), 2);
}

TEST(BlockPool, FreeBlocksGoBeforeCachedOnesAndCachedOnesInOrderOfRelease) {
  BlockPool pool(4);
  const BlockId a = pool.take(), b = pool.take(), c = pool.take(), d = pool.take();
  pool.set_node(a, kSome);
  pool.set_node(b, kSome);
  pool.drop_reference(b);
  pool.drop_reference(a);
  pool.drop_reference(c);
  pool.drop_reference(d);
  EXPECT_EQ(pool.n_cached(), 2);
  EXPECT_EQ(pool.n_free(), 2);
  EXPECT_EQ(pool.take(), d);
  EXPECT_EQ(pool.take(), c);
  EXPECT_EQ(pool.front(), b);
  pool.set_node(b, NodeId::kNone);
  EXPECT_EQ(pool.n_free(), 1);
  EXPECT_EQ(pool.take(), b);
  EXPECT_EQ(pool.front(), a);
}

TEST(BlockPool, AFoundBlockComesBackIntoUseWithItsMark) {
  BlockPool pool(2);
  const BlockId a = pool.take();
  pool.set_node(a, kSome);
  pool.drop_reference(a);
  EXPECT_EQ(pool.n_cached(), 1);
  pool.add_reference(a);
  EXPECT_EQ(pool.n_cached(), 0);
  EXPECT_EQ(pool.node_of(a), kSome);
  EXPECT_EQ(pool.n_available(), 1);
}

TEST(BlockPoolDeathTest, ADoubleReleaseStops) {
  BlockPool pool(1);
  const BlockId a = pool.take();
  pool.drop_reference(a);
  EXPECT_DEATH(pool.drop_reference(a), "released twice");
}

TEST(BlockPoolDeathTest, AKnownBlockIsNotGivenAway) {
  BlockPool pool(1);
  const BlockId a = pool.take();
  pool.set_node(a, kSome);
  pool.drop_reference(a);
  EXPECT_DEATH(pool.take(), "still knows");
}

// The pool against a model of plain lists (row P1).
TEST(BlockPool, RandomOperationsAgreeWithAModelOfPlainLists) {
  constexpr int kBlocks = 13;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    BlockPool pool(kBlocks);
    std::vector<int> references(kBlocks, 0);
    std::vector<int> transfers(kBlocks, 0);
    std::vector<bool> known(kBlocks, false);
    std::vector<int> free_list(kBlocks), cached;
    for (int i = 0; i < kBlocks; ++i) free_list[static_cast<size_t>(i)] = i;
    const auto leave = [&](int b) {
      std::erase(free_list, b);
      std::erase(cached, b);
    };
    const auto join = [&](int b) {
      const auto i = static_cast<size_t>(b);
      if (references[i] > 0 || transfers[i] > 0) return;
      if (known[i]) {
        cached.push_back(b);
      } else {
        free_list.insert(free_list.begin(), b);
      }
    };
    for (int n = 0; n < 3000; ++n) {
      const int b = static_cast<int>(random() % kBlocks);
      const size_t i = static_cast<size_t>(b);
      switch (random() % 7) {
        case 0:
          if (!free_list.empty()) {
            const int expected = free_list.front();
            ASSERT_EQ(raw(pool.take()), expected);
            free_list.erase(free_list.begin());
            references[static_cast<size_t>(expected)] = 1;
          }
          break;
        case 1:
          leave(b);
          pool.add_reference(BlockId{b});
          ++references[i];
          break;
        case 2:
          if (references[i] == 0) break;
          pool.drop_reference(BlockId{b});
          --references[i];
          join(b);
          break;
        case 3:
          if (references[i] == 0) break;
          pool.set_node(BlockId{b}, kSome);
          known[i] = true;
          break;
        case 4:
          if (!known[i]) break;
          leave(b);
          pool.set_node(BlockId{b}, NodeId::kNone);
          known[i] = false;
          join(b);
          break;
        case 5:
          leave(b);
          pool.begin_transfer(BlockId{b});
          ++transfers[i];
          break;
        default:
          if (transfers[i] == 0) break;
          pool.end_transfer(BlockId{b});
          if (--transfers[i] == 0) join(b);
      }
      ASSERT_EQ(pool.n_free(), static_cast<int>(free_list.size()));
      ASSERT_EQ(pool.n_cached(), static_cast<int>(cached.size()));
      ASSERT_EQ(pool.n_free() + pool.n_cached() + pool.n_in_transfer() + pool.n_in_use(), kBlocks);
      const int expected_front = !free_list.empty() ? free_list.front() : cached.empty() ? -1 : cached.front();
      ASSERT_EQ(raw(pool.front()), expected_front);
      if (n % 50 == 0) pool.self_check();
    }
  }
}

}  // namespace
}  // namespace ibid
