#include "base/numa.h"

#include <gtest/gtest.h>
#include <linux/mempolicy.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <optional>
#include <thread>

#include "base/thread_team.h"

namespace ibid {
namespace {

TEST(Numa, ListsAreAsTheSystemWritesThem) {
  EXPECT_EQ(*read_number_list("0"), std::vector<int>{0});
  EXPECT_EQ(*read_number_list("0-2,5,8-9"), (std::vector<int>{0, 1, 2, 5, 8, 9}));
  EXPECT_EQ(*read_number_list(""), std::vector<int>());
  for (const char* wrong : {",", "0,", "1-", "2-1", "a", "-1", "0 1", "0;1", "99999999999", "0-99999999"})
    EXPECT_FALSE(read_number_list(wrong).ok()) << wrong;
}

TEST(Numa, PoliciesHaveNames) {
  EXPECT_EQ(*numa_policy_from("system"), NumaPolicy());
  EXPECT_EQ(numa_policy_from("spread")->kind, NumaPolicy::Kind::kSpread);
  EXPECT_EQ(*numa_policy_from("3"), (NumaPolicy{NumaPolicy::Kind::kNode, 3}));
  for (const char* wrong : {"", "all", "-1", "1,2", "4096", "0x1"}) EXPECT_FALSE(numa_policy_from(wrong).ok()) << wrong;
}

// The calling thread's policy mode, as the system reports it; none where it refuses.
std::optional<int> mode_under(const NumaPolicy& policy) {
  std::optional<int> mode;
  std::thread([&] {  // others keep theirs
    const Status placed = place_memory(policy);
    if (!placed) {
      EXPECT_EQ(placed.error().kind, ErrorKind::kUnavailable) << placed.error().message;
      return;
    }
    int got = -1;
    std::thread([&] {  // what it starts has it too
      syscall(SYS_get_mempolicy, &got, nullptr, 0UL, nullptr, 0UL);
    })
        .join();
    mode = got;
    EXPECT_GE(usable_cores(), 1);
  })
      .join();
  return mode;
}

TEST(Numa, PlacesWhatIsWrittenFirst) {
  const std::vector<int> nodes = numa_nodes();
  using Kind = NumaPolicy::Kind;
  EXPECT_EQ(mode_under({}).value_or(MPOL_DEFAULT), MPOL_DEFAULT);
  EXPECT_EQ(mode_under({Kind::kSpread}).value_or(MPOL_INTERLEAVE), MPOL_INTERLEAVE);
  if (nodes.empty()) return;
  EXPECT_EQ(mode_under({Kind::kNode, nodes.front()}).value_or(MPOL_BIND), MPOL_BIND);
  const Status nowhere = place_memory({Kind::kNode, nodes.back() + 1});
  ASSERT_FALSE(nowhere.ok());
  EXPECT_EQ(nowhere.error().kind, ErrorKind::kNotFound);
  EXPECT_NE(nowhere.error().message.find("there are: " + std::to_string(nodes.front())), std::string::npos);
}

}  // namespace
}  // namespace ibid
