// How far fetching and loading a model are, for a callback that shows it.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace ibid::host {

struct LoadProgress {
  std::string file;      // that is being fetched; empty: the model's weights are being prepared
  int64_t n_before = 0;  // of n_done, what was there before
  int64_t n_done = 0;    // bytes of a file; of weights, percent
  int64_t n_total = 0;   // 0: unknown
  bool is_over = false;  // the last report of this work, whether it succeeded or not; the counts are meaningless
};

// Called on the thread that loads, about ten times a second, while it waits. Must not throw. Empty: nothing is
// reported.
using OnProgress = std::function<void(const LoadProgress&)>;

}  // namespace ibid::host
