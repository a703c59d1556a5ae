#include "cache/state_pool.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace ibid {
namespace {

constexpr NodeId kA{0}, kB{1};

TEST(StatePool, KeepsNothingForAModelWithoutRecurrentLayers) {
  const StatePool pool(0, 0, 4);
  EXPECT_FALSE(pool.keeps_states());
  EXPECT_EQ(pool.longest(kA, 100), 0);
  pool.self_check();
}

TEST(StatePool, ASlotWithoutReferencesIsFreeAndASnapshotCached) {
  StatePool pool(3, 0, 2);
  const StateId a = pool.take(), b = pool.take();
  EXPECT_TRUE(pool.may_write(a));
  pool.hold(kA, 7, a);
  EXPECT_FALSE(pool.may_write(a));
  pool.drop_reference(a);
  pool.drop_reference(b);
  EXPECT_EQ(pool.pool(Tier::kDevice).n_cached(), 1);
  EXPECT_EQ(pool.pool(Tier::kDevice).n_free(), 2);
  pool.self_check();
}

TEST(StatePool, SharedStateIsNeverWritten) {
  StatePool pool(2, 0, 1);
  const StateId a = pool.take();
  pool.add_reference(a);
  EXPECT_FALSE(pool.may_write(a));
  pool.drop_reference(a);
  EXPECT_TRUE(pool.may_write(a));
}

TEST(StatePool, FindsTheSnapshotAfterTheMostTokens) {
  StatePool pool(4, 0, 2);
  for (const int32_t n : {3, 12, 5}) {
    const StateId state = pool.take();
    pool.hold(kA, n, state);
    pool.drop_reference(state);
  }
  EXPECT_EQ(pool.longest(kA, 16), 12);
  EXPECT_EQ(pool.longest(kA, 12), 12);
  EXPECT_EQ(pool.longest(kA, 11), 5);
  EXPECT_EQ(pool.longest(kA, 2), 0);
  EXPECT_EQ(pool.longest(kB, 16), 0);
  const StateId found = pool.find(kA, 5);
  EXPECT_EQ(pool.n_references(found), 1);
  pool.drop_reference(found);
  pool.self_check();
}

TEST(StatePool, ForgetsTheLeastRecentlyUsedSnapshotWhereThereIsNoRoomBelow) {
  StatePool pool(2, 0, 2);
  const StateId a = pool.take(), b = pool.take();
  pool.hold(kA, 1, a);
  pool.hold(kB, 1, b);
  pool.drop_reference(a);
  pool.drop_reference(b);
  pool.drop_reference(pool.find(kA, 1));
  EXPECT_EQ(pool.take(), b);
  EXPECT_EQ(pool.longest(kB, 1), 0);
  EXPECT_EQ(pool.longest(kA, 1), 1);
  EXPECT_TRUE(pool.copies().empty());
  pool.self_check();
}

TEST(StatePool, MovesASnapshotToTheHostAndBack) {
  StatePool pool(1, 1, 1);
  const StateId a = pool.take();
  pool.hold(kA, 4, a);
  pool.drop_reference(a);
  const StateId b = pool.take();  // a's slot
  ASSERT_EQ(pool.copies().size(), 1u);
  EXPECT_EQ(pool.copies()[0], (StateCopy{a, StateId{0}, Tier::kDevice, Tier::kHost}));
  EXPECT_EQ(pool.longest(kA, 4), 4);
  EXPECT_EQ(pool.pool(Tier::kHost).n_in_transfer(), 1);
  EXPECT_EQ(pool.find(kA, 4), StateId::kNone);  // no room
  pool.transferred();
  EXPECT_EQ(pool.pool(Tier::kHost).n_cached(), 1);
  pool.drop_reference(b);
  const StateId found = pool.find(kA, 4);
  EXPECT_EQ(found, b);
  ASSERT_EQ(pool.copies().size(), 1u);
  EXPECT_EQ(pool.copies()[0], (StateCopy{StateId{0}, b, Tier::kHost, Tier::kDevice}));
  pool.transferred();
  pool.self_check();
}

TEST(StatePool, ANodeThatGoesTakesItsSnapshotsAlongAndOneThatIsReplacedGivesThemOn) {
  StatePool pool(3, 0, 2);
  for (const int32_t n : {1, 2}) {
    const StateId state = pool.take();
    pool.hold(kA, n, state);
    pool.drop_reference(state);
  }
  const StateId other = pool.take();
  pool.hold(kB, 2, other);
  pool.put(kB, pool.take_out(kA));
  EXPECT_EQ(pool.longest(kA, 9), 0);
  EXPECT_EQ(pool.longest(kB, 1), 1);
  EXPECT_EQ(pool.find(kB, 2), other);  // what it had stays
  EXPECT_EQ(pool.n_snapshots(), 2);
  pool.self_check();
  pool.forget(kB);
  EXPECT_EQ(pool.n_snapshots(), 0);
  EXPECT_EQ(pool.n_references(other), 2);
  pool.self_check();
}

TEST(StatePool, RandomUseKeepsItsCounts) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    std::mt19937_64 random(seed);
    const auto up_to = [&random](int32_t n) { return static_cast<int32_t>(random() % static_cast<uint64_t>(n)); };
    constexpr int32_t kNodes = 6;
    StatePool pool(2 + up_to(6), up_to(5), kNodes);
    std::vector<StateId> held;
    for (int i = 0; i < 2000; ++i) {
      const NodeId node{up_to(kNodes)};
      switch (up_to(7)) {
        case 0:
        case 1:
          if (pool.n_available() > 0) held.push_back(pool.take());
          break;
        case 2:
        case 3:
          if (held.empty()) break;
          std::swap(held[static_cast<size_t>(up_to(static_cast<int32_t>(held.size())))], held.back());
          if (up_to(2) == 0) pool.hold(node, 1 + up_to(16), held.back());
          pool.drop_reference(held.back());
          held.pop_back();
          break;
        case 4:
          if (const int32_t n = pool.longest(node, 16); n > 0) {
            if (const StateId found = pool.find(node, n); found != StateId::kNone) held.push_back(found);
          }
          break;
        case 5:
          up_to(4) == 0 ? pool.forget(node) : pool.put(NodeId{up_to(kNodes)}, pool.take_out(node));
          break;
        default:
          pool.transferred();
      }
      pool.self_check();
      int64_t n_references = 0;
      for (int32_t s = 0; s < pool.pool(Tier::kDevice).n_total(); ++s) n_references += pool.n_references(StateId{s});
      ASSERT_EQ(n_references, static_cast<int64_t>(held.size()));
    }
  }
}

TEST(StatePool, ReadsNoSnapshotWhoseCopyIsStillPlanned) {
  StatePool pool(1, 1, 2);
  const auto written = [&pool](NodeId node) {
    std::vector<std::pair<int32_t, Tier>> out;
    pool.each_written(node, [&](int32_t n, Tier tier, StateId) { out.emplace_back(n, tier); });
    return out;
  };
  using List = std::vector<std::pair<int32_t, Tier>>;
  const StateId a = pool.take();
  pool.hold(kA, 3, a);
  EXPECT_EQ(written(kA), (List{{3, Tier::kDevice}}));
  EXPECT_EQ(written(kB), List{});
  pool.drop_reference(a);
  pool.drop_reference(pool.take());  // it goes down
  EXPECT_EQ(written(kA), List{});
  pool.transferred();
  EXPECT_EQ(written(kA), (List{{3, Tier::kHost}}));
  pool.drop_reference(pool.find(kA, 3));  // and comes up: until then it is read below
  EXPECT_EQ(written(kA), (List{{3, Tier::kHost}}));
  pool.transferred();
  EXPECT_EQ(written(kA), (List{{3, Tier::kDevice}}));
}

}  // namespace
}  // namespace ibid
