#include "base/cgroup.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <limits>
#include <vector>

#include "base/memory.h"
#include "base/thread_team.h"
#include "temp_folder.h"

namespace ibid {
namespace {

class Cgroup : public ::testing::Test {
 protected:
  void put(const std::string& file, std::string_view content) {
    std::filesystem::create_directories(std::filesystem::path(folder_.path("fs/" + file)).parent_path());
    folder_.write("fs/" + file, content);
  }
  CgroupLimits limits(std::string_view own) {
    folder_.write("own", own);
    return cgroup_limits(folder_.path("own"), folder_.path("fs"));
  }
  TempFolder folder_;
};

TEST_F(Cgroup, TheLeastLimitOfAGroupAndOfAllAboveHolds) {
  put("cpu.max", "max 100000\n");
  put("system.slice/cpu.max", "250000 100000\n");
  put("system.slice/memory.max", "3000\n");
  put("system.slice/ibid.service/cpu.max", "800000 100000\n");
  put("system.slice/ibid.service/memory.max", "4000\n");
  put("system.slice/ibid.service/inner/memory.max", "max\n");
  CgroupLimits found = limits("0::/system.slice/ibid.service/inner\n");
  EXPECT_EQ(found.cores, 2);
  EXPECT_EQ(found.bytes, 3000);
  // A unit's own limit is below its slice's.
  put("system.slice/ibid.service/cpu.max", "150000 100000\n");
  put("system.slice/ibid.service/memory.max", "2000\n");
  found = limits("0::/system.slice/ibid.service\n");
  EXPECT_EQ(found.cores, 1);
  EXPECT_EQ(found.bytes, 2000);
  // A neighbour's is none of ours.
  put("system.slice/other.service/memory.max", "1\n");
  EXPECT_EQ(limits("0::/system.slice/ibid.service\n").bytes, 2000);
}

TEST_F(Cgroup, MaxAndMissingFilesAreNoLimit) {
  EXPECT_EQ(limits("0::/a/b\n").cores, 0);
  EXPECT_EQ(limits("0::/a/b\n").bytes, 0);
  put("a/cpu.max", "max 100000\n");
  put("a/memory.max", "max\n");
  EXPECT_EQ(limits("0::/a/b\n").cores, 0);
  EXPECT_EQ(limits("0::/a/b\n").bytes, 0);
  // A process whose group is not reported may be in the root group.
  put("cpu.max", "300000 100000\n");
  put("memory.max", "77\n");
  EXPECT_EQ(cgroup_limits(folder_.path("nothing"), folder_.path("fs")).cores, 3);
  EXPECT_EQ(cgroup_limits(folder_.path("nothing"), folder_.path("fs")).bytes, 77);
  EXPECT_EQ(cgroup_limits(folder_.path("nothing"), folder_.path("nowhere")).bytes, 0);
}

TEST_F(Cgroup, LessThanACoreIsOne) {
  put("cpu.max", "20000 100000\n");
  EXPECT_EQ(limits("0::/\n").cores, 1);
}

TEST_F(Cgroup, APathThatLeavesTheMountIsNotFollowed) {
  put("memory.max", "500\n");
  put("a/memory.max", "400\n");
  std::filesystem::create_directories(folder_.path("outside"));
  folder_.write("outside/memory.max", "1\n");
  for (const char* own : {"0::/../outside\n", "0::/a/../../outside\n", "0::/..\n", "0::/a/..\n", "0::/a/../a\n"}) {
    EXPECT_EQ(limits(own).bytes, 500) << own;
  }
  EXPECT_EQ(limits("0::/./a//\n").bytes, 400);
}

TEST_F(Cgroup, VersionOneHasAPathForEachController) {
  put("cpu/cpu.cfs_quota_us", "-1\n");
  put("cpu/cpu.cfs_period_us", "100000\n");
  put("cpu/a/cpu.cfs_quota_us", "400000\n");
  put("cpu/a/cpu.cfs_period_us", "100000\n");
  put("cpu/a/b/cpu.cfs_quota_us", "350000\n");
  put("cpu/a/b/cpu.cfs_period_us", "50000\n");
  put("memory/memory.limit_in_bytes", "9223372036854771712\n");
  put("memory/m:n/memory.limit_in_bytes", "1000\n");
  put("memory/m:n/deep/memory.limit_in_bytes", "2000\n");
  put("unified/u/memory.max", "1500\n");
  const CgroupLimits found = limits("5:memory:/m:n/deep\n4:cpu,cpuacct:/a/b\n1:name=systemd:/x\n0::/u\n");
  EXPECT_EQ(found.cores, 4);
  EXPECT_EQ(found.bytes, 1000);
  EXPECT_EQ(limits("5:memory:/\n0::/u\n").bytes, 1500);
}

TEST_F(Cgroup, OddContentIsNoLimit) {
  const std::string long_text(200'000, '9');
  for (const std::string& odd :
       std::vector<std::string>{"", "\n", " ", "-5 100000", "0 100000", "100000 0", "100000 -1", "1e5 100000",
                                "nan nan", "100000", "100000  100000", "99999999999999999999 1", "300000 100000 7",
                                "0x10 1", std::string("\0\0", 2), long_text}) {
    put("cpu.max", odd);
    EXPECT_EQ(limits("0::/\n").cores, 0) << odd.substr(0, 40);
  }
  put("cpu.max", "9223372036854775807 1\n");
  EXPECT_EQ(limits("0::/\n").cores, std::numeric_limits<int>::max());
  for (const std::string& odd :
       std::vector<std::string>{"", "\n", "-1", "0", "1.5", "12kB", "99999999999999999999", long_text}) {
    put("memory.max", odd);
    EXPECT_EQ(limits("0::/\n").bytes, 0) << odd.substr(0, 40);
  }
  std::filesystem::create_directories(folder_.path("fs/a/memory.max"));  // a folder where a file should be
  put("memory.max", "600\n");
  std::string deep = "0::";
  for (int i = 0; i < 20'000; ++i) deep += "/a";
  for (const std::string& own :
       {std::string("0::/a\n"), std::string("0"), std::string("0:"), std::string("::\n:::\n"), std::string("0::"),
        std::string("\n\n\n"), std::string("0::/\0x\n", 7), deep, long_text}) {
    EXPECT_EQ(limits(own).bytes, 600) << own.substr(0, 40);
  }
}

TEST_F(Cgroup, BoundsWhatThisProcessMayUse) {
  const CgroupLimits own = cgroup_limits();
  EXPECT_LE(usable_cores(), own.cores > 0 ? own.cores : std::numeric_limits<int>::max());
  EXPECT_LE(usable_bytes(), own.bytes > 0 ? own.bytes : std::numeric_limits<int64_t>::max());
  EXPECT_GT(usable_bytes(), 0);
}

}  // namespace
}  // namespace ibid
