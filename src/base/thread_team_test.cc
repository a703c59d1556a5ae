#include "base/thread_team.h"

#include <gtest/gtest.h>

#include <array>
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
    for (int64_t n_tasks : {0, 1, 2, 7, 64, 1000, 4095, 4096, 10001}) {
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

// Two tasks wait for each other, so that both threads are at work; all others of a run follow the one before.
TEST(ThreadTeam, AThreadGoesThroughNeighbouringTasks) {
  ThreadTeam team(2);
  constexpr int64_t kTasks = 12;
  std::array<std::atomic<int>, kTasks / 2> n_arrived{};
  std::array<std::vector<int64_t>, 2> order;
  team.parallel_for(kTasks, [&](int64_t task, int thread) {
    order[static_cast<size_t>(thread)].push_back(task);
    std::atomic<int>& pair = n_arrived[static_cast<size_t>(task % (kTasks / 2))];  // with the other run's task
    ++pair;
    while (pair < 2) std::this_thread::yield();
  });
  EXPECT_EQ(order[0], (std::vector<int64_t>{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(order[1], (std::vector<int64_t>{6, 7, 8, 9, 10, 11}));
}

TEST(ThreadTeam, AThreadThatIsHeldUpHoldsUpNoMoreThanItsTask) {
  ThreadTeam team(3);
  constexpr int64_t kTasks = 300;
  std::atomic<int64_t> n_done = 0;
  team.parallel_for(kTasks, [&](int64_t task, int) {
    // The loop ends only if others run the rest of the first run, too.
    while (task == 0 && n_done < kTasks - 1) std::this_thread::yield();
    ++n_done;
  });
  EXPECT_EQ(n_done, kTasks);
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
    EXPECT_GE(beats.size(), 2u) << "one is that of the loop's start";
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
