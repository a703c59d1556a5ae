#include "kernels/cpu/linear_cut.h"

#include <algorithm>

#include "kernels/cpu/linear_table.h"

namespace ibid::cpu {
namespace {

// A panel is two register tiles side by side, or four and two of one row; where a thread would else have nothing to do
// while another has two, half a panel.
constexpr int64_t kTilesOfPanel = 6, kTilesOfHalf = 3;
// Enough to even out, few enough to cost nothing: with four, what tasks of unequal weights leave to wait for was up to
// 7 % of a product; 16 are as fast as eight.
constexpr int64_t kTasksPerThread = 8;
constexpr int64_t kFewestRows = 48;  // a weight read and unpacked for fewer costs more than an idle thread
constexpr int64_t kRowsOfChunk = 8;
constexpr int64_t kSizesTried = 4;
// In percent: what a smaller panel must save, and what a smaller half of one or fewer rows must.
constexpr int64_t kGain = 1, kGainOfSmallest = 10;

int64_t pieces(int64_t n, int64_t size) { return (n + size - 1) / size; }
// Of n in as many pieces as `size` makes, but all as long as can be in multiples of `unit`.
int64_t even(int64_t n, int64_t size, int64_t unit) { return pieces(pieces(n, pieces(n, size)), unit) * unit; }

}  // namespace

Cut cut_product(int64_t T, std::span<const int64_t> n_tiles, int64_t n_threads) {
  int64_t n_panels = 0;
  for (int64_t n : n_tiles) n_panels += pieces(n, kTilesOfPanel);
  Cut best{};
  int64_t least = 0;  // what the busiest thread has to do then, in tiles by rows
  auto try_cut = [&](int64_t most_rows, int64_t most_tiles, int64_t unit, int64_t gain) {
    Cut cut{.n_rows = even(T, most_rows, kRowsOfChunk), .n_tiles = {}};
    int64_t n_tasks = 0, largest = 0;
    for (size_t j = 0; j < n_tiles.size(); ++j) {
      cut.n_tiles[j] = even(n_tiles[j], most_tiles, unit);
      n_tasks += pieces(n_tiles[j], cut.n_tiles[j]);
      largest = std::max(largest, cut.n_tiles[j]);
    }
    const int64_t load = pieces(n_tasks * pieces(T, cut.n_rows), n_threads) * largest * std::min(T, cut.n_rows);
    if (least != 0 && load * 100 > least * (100 - gain)) return;
    least = load;
    best = cut;
  };
  const int64_t row_pieces = pieces(T, kMaxProductRows);
  const int64_t most = pieces(n_panels * row_pieces, kTasksPerThread * n_threads);
  for (int64_t size = most; size > std::max<int64_t>(0, most - kSizesTried); --size) {
    try_cut(kMaxProductRows, size * kTilesOfPanel, kTilesOfPanel, kGain);
  }
  if (most == 1) {  // few tasks for each thread: smaller ones, where that leaves less to wait for
    try_cut(kMaxProductRows, kTilesOfHalf, kTilesOfHalf, kGainOfSmallest);
    if (T > kFewestRows) {
      try_cut(kFewestRows, kTilesOfPanel, kTilesOfPanel, kGainOfSmallest);
      try_cut(kFewestRows, kTilesOfHalf, kTilesOfHalf, kGainOfSmallest);
    }
  }
  return best;
}

}  // namespace ibid::cpu
