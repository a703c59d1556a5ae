#include "worker/state_store.h"

#include <gtest/gtest.h>

#include <cstring>

namespace ibid {
namespace {

TEST(StateStore, MovesStatesBetweenTheDeviceAndTheHostInOrder) {
  const StateStore store = StateStore::create(24, 3, 2).value();
  ASSERT_EQ(store.slots().n_slots, 3);
  for (int i = 0; i < 3; ++i) std::memset(store.slots().slot(i), i + 1, 24);
  const std::vector<StateCopy> copies = {{StateId{0}, StateId{1}, Tier::kDevice, Tier::kHost},
                                         {StateId{2}, StateId{0}, Tier::kDevice, Tier::kHost},
                                         {StateId{1}, StateId{2}, Tier::kHost, Tier::kDevice}};
  store.copy(copies);
  EXPECT_EQ(store.slots().slot(2)[0], std::byte{1});
  EXPECT_EQ(store.slots().slot(2)[23], std::byte{1});
  EXPECT_EQ(store.slots().slot(1)[0], std::byte{2});
}

TEST(StateStore, OfAModelWithoutRecurrentLayersIsEmpty) {
  const StateStore store = StateStore::create(0, 0, 0).value();
  EXPECT_EQ(store.slots().n_slots, 0);
  store.copy({});
}

}  // namespace
}  // namespace ibid
