#include "cache/durable_index.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>
#include <vector>

#include "cache/cache_scope.h"

namespace ibid {
namespace {

DurableKey key(uint8_t n) {
  DurableKey out = {};
  out[0] = n;
  return out;
}

void put(DurableIndex& index, uint8_t n, int64_t bytes, int64_t age) {
  index.add({key(n), bytes, age});
  index.written(key(n));
}

std::vector<DurableKey> evicted_for(DurableIndex& index, int64_t bytes, bool& fits) {
  std::vector<DurableKey> out;
  while (const auto gone = index.evict_for(bytes, fits)) out.push_back(*gone);
  return out;
}

TEST(DurableKey, EachFieldOfTheScopeTheLayoutTheTokensAndWhatIsBeforeThemMakeAnother) {
  const CacheScope base = {
      .arithmetic = "2", .model = "m", .adapter = "a", .kv_dtype = "F16", .rope = "r", .salt = "s"};
  std::set<DurableKey> keys;
  keys.insert(durable_key_of_scope("K3", base.spelled()));
  for (std::string CacheScope::*field : {&CacheScope::arithmetic, &CacheScope::model, &CacheScope::adapter,
                                         &CacheScope::kv_dtype, &CacheScope::rope, &CacheScope::salt}) {
    CacheScope other = base;
    other.*field += "x";
    keys.insert(durable_key_of_scope("K3", other.spelled()));
  }
  keys.insert(durable_key_of_scope("K4", base.spelled()));
  keys.insert(durable_key_of_scope("", "K3" + base.spelled()));  // another border between the two
  EXPECT_EQ(keys.size(), 9u);
  const DurableKey scope = durable_key_of_scope("K3", base.spelled());
  const std::vector<TokenId> ab = {TokenId{1}, TokenId{2}}, ba = {TokenId{2}, TokenId{1}};
  const DurableKey first = durable_key_of_block(scope, ab);
  keys.insert(first);
  keys.insert(durable_key_of_block(scope, ba));
  keys.insert(durable_key_of_block(first, ab));
  keys.insert(durable_key_of_block(durable_key_of_block(scope, ba), ab));
  EXPECT_EQ(keys.size(), 13u);
  EXPECT_EQ(first, durable_key_of_block(scope, ab));
}

TEST(DurableKey, OfAStateIsOfItsTokensAndOfWhatIsBeforeThem) {
  const DurableKey one = durable_key_of_scope("layout", "one"), two = durable_key_of_scope("layout", "two");
  const std::vector<TokenId> ab = {TokenId{1}, TokenId{2}}, a = {TokenId{1}};
  const std::set<DurableKey> keys = {
      durable_key_of_block(one, ab),
      durable_key_of_state(one, ab),
      durable_key_of_state(one, a),
      durable_key_of_state(two, ab),
      durable_key_of_state(durable_key_of_block(one, ab), ab),
  };
  EXPECT_EQ(keys.size(), 5u);
}

TEST(DurableIndex, BlocksBeingWrittenAreCountedAndNotFound) {
  DurableIndex index(100);
  index.add({key(1), 40, 5});
  EXPECT_TRUE(index.contains(key(1)));
  EXPECT_FALSE(index.is_there(key(1)));
  EXPECT_EQ(index.bytes(), 40);
  bool fits = true;
  EXPECT_TRUE(evicted_for(index, 61, fits).empty());  // it cannot go before it has come
  EXPECT_FALSE(fits);
  index.written(key(1));
  EXPECT_TRUE(index.is_there(key(1)));
  EXPECT_EQ(evicted_for(index, 61, fits), std::vector{key(1)});
  EXPECT_TRUE(fits);
  index.written(key(1));  // a write that ends after its entry has gone
  EXPECT_FALSE(index.contains(key(1)));
  index.self_check();
}

TEST(DurableIndex, EvictsTheLeastRecentlyUsedAndOfOneSequenceItsEndFirst) {
  DurableIndex index(60);
  const int64_t first = index.next_use(), second = index.next_use();
  for (uint8_t i = 0; i < 3; ++i) put(index, i, 10, DurableIndex::age_of(first, i));
  for (uint8_t i = 0; i < 3; ++i) put(index, 10 + i, 10, DurableIndex::age_of(second, i));
  EXPECT_TRUE(index.touch(key(0), DurableIndex::age_of(second + 2'000'000'000, 0), 1'000'000'000));
  EXPECT_FALSE(
      index.touch(key(10), DurableIndex::age_of(second, 0) + 1, 1'000'000'000));  // a little: not worth telling
  EXPECT_FALSE(index.touch(key(10), 1, 0));                                       // nothing gets older
  bool fits = false;
  EXPECT_EQ(evicted_for(index, 40, fits), (std::vector{key(2), key(1), key(12), key(11)}));
  EXPECT_TRUE(fits);
  index.self_check();
}

TEST(DurableIndex, AUseAfterARestartIsYoungerThanAllThatWasFound) {
  DurableIndex index(100);
  index.found({key(1), 10, 777'123'456});
  index.found({key(1), 10, 5});  // once
  index.set_now(1000);           // a clock that was put back
  EXPECT_EQ(index.n_entries(), 1);
  EXPECT_GT(DurableIndex::age_of(index.next_use(), 999'999), 777'123'456);
  index.set_now(5'000'000'000);
  EXPECT_GT(index.next_use(), 5'000'000'000);
}

TEST(DurableIndex, RandomCallsKeepItsCounts) {
  std::mt19937_64 random(3);
  DurableIndex index(500);
  for (int i = 0; i < 20000; ++i) {
    const DurableKey k = key(static_cast<uint8_t>(random() % 80));
    const int64_t bytes = 1 + static_cast<int64_t>(random() % 30);
    bool fits = false;
    switch (random() % 4) {
      case 0:
        evicted_for(index, bytes, fits);
        if (fits && !index.contains(k)) index.add({k, bytes, static_cast<int64_t>(random() % 1000)});
        break;
      case 1:
        index.written(k);
        break;
      case 2:
        index.touch(k, static_cast<int64_t>(random() % 1000), 10);
        break;
      case 3:
        if (random() % 4 == 0) index.remove(k);
    }
    ASSERT_LE(index.bytes(), 500);
    if (i % 100 == 0) index.self_check();
  }
}

}  // namespace
}  // namespace ibid
