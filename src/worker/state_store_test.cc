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

TEST(StateStore, AStateLeavesAndComesBackWhole) {
  const StateStore store = StateStore::create(24, 2, 1).value();
  for (int i = 0; i < 2; ++i) std::memset(store.slots().slot(i), i + 1, 24);
  store.copy(std::vector<StateCopy>{{StateId{1}, StateId{0}, Tier::kDevice, Tier::kHost}});
  std::vector<std::byte> here(24), below(24);
  store.export_state(Tier::kDevice, StateId{0}, here);
  store.export_state(Tier::kHost, StateId{0}, below);
  EXPECT_EQ(here, std::vector<std::byte>(24, std::byte{1}));
  EXPECT_EQ(below, std::vector<std::byte>(24, std::byte{2}));
  store.import_state(StateId{1}, here);
  EXPECT_EQ(std::memcmp(store.slots().slot(0), store.slots().slot(1), 24), 0);
}

TEST(StateStore, OfAModelWithoutRecurrentLayersIsEmpty) {
  const StateStore store = StateStore::create(0, 0, 0).value();
  EXPECT_EQ(store.slots().n_slots, 0);
  store.copy({});
}

}  // namespace
}  // namespace ibid
