#include "server/access/fair_queue.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

namespace ibid {
namespace {

// A queue whose work takes as long as it states.
struct Timed {
  double now = 0;
  FairQueue queue{[this] { return now; }};
  std::string order;
  void push(const std::string& tenant, double seconds, double weight = 1) {
    queue.push(tenant, weight, [this, tenant, seconds] { order += tenant, now += seconds; });
  }
  std::string run() {
    while (queue.run_one()) {
    }
    return std::exchange(order, {});
  }
};

TEST(FairQueue, RequestsOfOneTenantComeInOrder) {
  std::string order;
  FairQueue queue([] { return 0.0; });
  for (const char c : std::string("abc")) queue.push("", 1, [&order, c] { order += c; });
  while (queue.run_one()) {
  }
  EXPECT_EQ(order, "abc");
}

TEST(FairQueue, BusyTenantDelaysAnotherByOnePiece) {
  Timed t;
  for (int i = 0; i < 100; ++i) t.push("a", 0.25);
  ASSERT_TRUE(t.queue.run_one());
  t.push("b", 0.01);
  ASSERT_TRUE(t.queue.run_one());
  EXPECT_EQ(t.order, "ab");
}

TEST(FairQueue, TimeIsSharedByWeight) {
  Timed t;
  for (int i = 0; i < 300; ++i) t.push("a", 1), t.push("b", 1, 2), t.push("c", 0.5);
  std::map<char, double> seconds;
  for (int i = 0; i < 240; ++i) ASSERT_TRUE(t.queue.run_one());
  for (const char c : t.order) seconds[c] += c == 'c' ? 0.5 : 1;
  EXPECT_NEAR(seconds['b'], 2 * seconds['a'], 2);
  EXPECT_NEAR(seconds['c'], seconds['a'], 2);
}

TEST(FairQueue, IdleTenantSavesUpNothing) {
  Timed t;
  t.push("b", 1);
  for (int i = 0; i < 50; ++i) t.push("a", 1);
  for (int i = 0; i < 40; ++i) ASSERT_TRUE(t.queue.run_one());
  t.order.clear();
  for (int i = 0; i < 5; ++i) t.push("b", 1);
  for (int i = 0; i < 8; ++i) ASSERT_TRUE(t.queue.run_one());
  EXPECT_EQ(std::ranges::count(t.order, 'a'), 4) << t.order;
  t.run();
}

TEST(FairQueue, HeavyTenantWaitsForPresentTenantsOnly) {
  Timed t;
  t.push("a", 10), t.push("b", 1), t.push("b", 1), t.push("b", 1);
  ASSERT_TRUE(t.queue.run_one() && t.queue.run_one());
  t.push("a", 10);
  EXPECT_EQ(t.run(), "abbba");
  t.push("a", 1), t.push("b", 1);  // it was idle in between
  EXPECT_EQ(t.run(), "ab");
}

TEST(FairQueue, WorkThatThrowsIsPaidForAndGone) {
  Timed t;
  t.queue.push("a", 1, [&] {
    t.now += 5;
    throw std::bad_alloc();
  });
  t.push("a", 1), t.push("b", 1);
  EXPECT_THROW(t.queue.run_one(), std::bad_alloc);
  EXPECT_EQ(t.run(), "ba");
}

}  // namespace
}  // namespace ibid
