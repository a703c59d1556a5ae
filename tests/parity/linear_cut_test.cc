// How products are cut into tasks: the whole once, and evenly over any number of threads.
#include "kernels/cpu/linear_cut.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "kernels/cpu/linear_table.h"

namespace ibid {
namespace {

struct Product {
  int64_t T;
  std::vector<int64_t> n_tiles;
};

// Tasks' costs in tiles by rows, in the order in which they are numbered.
std::vector<int64_t> tasks_of(const Product& product, const cpu::Cut& cut) {
  std::vector<int64_t> costs;
  for (size_t j = 0; j < product.n_tiles.size(); ++j) {
    for (int64_t tile = 0; tile < product.n_tiles[j]; tile += cut.n_tiles[j]) {
      for (int64_t row = 0; row < product.T; row += cut.n_rows) {
        costs.push_back(std::min(cut.n_tiles[j], product.n_tiles[j] - tile) * std::min(cut.n_rows, product.T - row));
      }
    }
  }
  return costs;
}

// How long a team takes (base/thread_team.h): each thread its run from the front, then the others' from the back.
int64_t busiest(const std::vector<int64_t>& costs, int64_t n_threads) {
  const auto n = static_cast<int64_t>(costs.size());
  std::vector<int64_t> next, end, busy(static_cast<size_t>(n_threads));
  for (int64_t t = 0; t < n_threads; ++t) {
    next.push_back(n * t / n_threads);
    end.push_back(n * (t + 1) / n_threads);
  }
  for (int64_t done = 0; done < n; ++done) {
    const auto thread = static_cast<size_t>(std::min_element(busy.begin(), busy.end()) - busy.begin());
    if (next[thread] < end[thread]) {
      busy[thread] += costs[static_cast<size_t>(next[thread]++)];
      continue;
    }
    size_t of = thread;
    do of = (of + 1) % static_cast<size_t>(n_threads);
    while (next[of] == end[of]);
    busy[thread] += costs[static_cast<size_t>(--end[of])];
  }
  return *std::max_element(busy.begin(), busy.end());
}

TEST(LinearCut, TakesAllOnceAndLeavesNoThreadWaitingLong) {
  // In tiles: of models of 135M, 1B and 8B parameters and of others, alone and side by side.
  const std::vector<std::vector<int64_t>> weights = {
      {36},       {36, 12, 12}, {96, 96}, {3072}, {128},      {128, 32, 32}, {256},     {256, 64, 64},
      {512, 512}, {8016},       {1},      {7},    {40, 8, 8}, {304, 304},    {896, 896}};
  for (const auto& n_tiles : weights) {
    for (int64_t n_threads = 1; n_threads <= 64; ++n_threads) {
      for (int64_t T : {1, 8, 32, 48, 49, 96, 97, 100, 256, 300, 500, 512}) {
        SCOPED_TRACE(testing::Message() << T << " rows by " << testing::PrintToString(n_tiles) << " tiles, "
                                        << n_threads);
        const cpu::Cut cut = cpu::cut_product(T, n_tiles, n_threads);
        ASSERT_LE(cut.n_rows, cpu::kMaxProductRows);
        EXPECT_TRUE(cut.n_rows >= T || cut.n_rows % 8 == 0);
        for (size_t j = 0; j < n_tiles.size(); ++j) {
          EXPECT_TRUE(cut.n_tiles[j] >= n_tiles[j] || cut.n_tiles[j] % 3 == 0);
        }
        const std::vector<int64_t> costs = tasks_of({T, n_tiles}, cut);
        const int64_t all = std::accumulate(costs.begin(), costs.end(), int64_t{0});
        ASSERT_EQ(all, T * std::accumulate(n_tiles.begin(), n_tiles.end(), int64_t{0}));
        // A quarter above its share, or, where there are few tasks for so many threads, its share and the smallest
        // task.
        const double share = static_cast<double>(all) / static_cast<double>(n_threads);
        const double smallest = 3.0 * static_cast<double>(std::min<int64_t>(T, cpu::kMaxProductRows));
        EXPECT_LE(static_cast<double>(busiest(costs, n_threads)), std::max(1.25 * share, share + 1.25 * smallest));
      }
    }
  }
}

TEST(LinearCut, LeavesNothingToWaitForWhereItIsEven) {
  // 512 rows, which 96 at a time leave 32 of, and 36 tiles, which whole panels are six of: 1.14 and 1.33 of it else.
  for (int64_t n_threads : {2, 4}) {
    for (int64_t T : {8, 512}) {
      const std::vector<int64_t> costs = tasks_of({T, {36}}, cpu::cut_product(T, std::vector<int64_t>{36}, n_threads));
      EXPECT_LE(busiest(costs, n_threads) * n_threads, 36 * T * 102 / 100) << T << " rows, " << n_threads << " threads";
    }
  }
}

}  // namespace
}  // namespace ibid
