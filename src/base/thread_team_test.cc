#include "base/thread_team.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <set>
#include <thread>
#include <vector>

#include "base/clock.h"

namespace ibid {
namespace {

TEST(ThreadTeam, RunsEveryTaskExactlyOnce) {
  for (int n_threads : {1, 2, 3, 8}) {
    ThreadTeam team(n_threads);
    EXPECT_EQ(team.n_threads(), n_threads);
    for (int64_t n_tasks : {0, 1, 2, 7, 64, 1000}) {
      std::vector<std::atomic<int>> runs(static_cast<size_t>(n_tasks));
      team.parallel_for(n_tasks, [&](int64_t task, int thread) {
        ASSERT_TRUE(thread >= 0 && thread < n_threads);
        runs[static_cast<size_t>(task)]++;
      });
      for (const auto& n : runs) ASSERT_EQ(n, 1);
    }
  }
}

TEST(ThreadTeam, ALoopSeesWhatTheLoopBeforeItWrote) {
  ThreadTeam team(4);
  std::vector<int64_t> cell(257, 0);
  for (int64_t loop = 1; loop <= 3000; ++loop) {
    std::atomic<int> n_wrong = 0;
    team.parallel_for(257, [&](int64_t task, int) {
      if (cell[static_cast<size_t>(task)] != loop - 1) ++n_wrong;
      cell[static_cast<size_t>(task)] = loop;
    });
    ASSERT_EQ(n_wrong, 0) << "in loop " << loop;
  }
}

TEST(ThreadTeam, WakesWorkersThatFellAsleep) {
  ThreadTeam team(2);
  for (int i = 0; i < 5; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(3));
    // Each task waits for the other: the loop ends only if the worker comes.
    std::atomic<int> n_arrived = 0;
    team.parallel_for(2, [&](int64_t, int) {
      ++n_arrived;
      while (n_arrived < 2) std::this_thread::yield();
    });
    EXPECT_EQ(n_arrived, 2);
  }
}

TEST(ThreadTeam, BeatsWithinALoopAndStandsStillWithATaskThatDoes) {
  for (const int n_threads : {1, 3}) {
    ThreadTeam team(n_threads);
    EXPECT_EQ(team.last_beat(), 0);
    const double begin = steady_clock().now();
    std::set<double> beats;  // as the caller's thread sees them
    team.parallel_for(500, [&](int64_t, int thread) {
      std::this_thread::sleep_for(std::chrono::microseconds(200));
      if (thread == 0) beats.insert(team.last_beat());
    });
    EXPECT_GE(beats.size(), 2u) << "one is that of the loop's begin";
    EXPECT_GT(*beats.begin(), begin - 0.02);
    EXPECT_LE(*beats.rbegin(), steady_clock().now());
    team.parallel_for(1, [&](int64_t, int) {
      const double before = team.last_beat();
      std::this_thread::sleep_for(std::chrono::milliseconds(30));
      EXPECT_EQ(team.last_beat(), before);
    });
  }
}

TEST(ThreadTeam, ThisProcessMayUseAtLeastOneCore) { EXPECT_GE(usable_cores(), 1); }

}  // namespace
}  // namespace ibid
