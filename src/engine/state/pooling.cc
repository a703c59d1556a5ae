#include "engine/state/pooling.h"

#include <utility>

namespace ibid {

void Pool::add(int32_t from, int32_t n_tokens, std::span<const float> states) {
  const size_t width = sum_.size();
  if (pooling_ == Pooling::kEach && rows_.empty()) rows_.reserve(static_cast<size_t>(n_tokens) * width);
  for (int32_t i = from; !states.empty(); ++i, states = states.subspan(width)) {
    if (pooling_ == Pooling::kEach) {
      if (i != n_seen_) continue;
      rows_.insert(rows_.end(), states.begin(), states.begin() + static_cast<std::ptrdiff_t>(width));
      ++n_seen_;
      continue;
    }
    const bool is_mean = pooling_ == Pooling::kMean && i == n_seen_;
    const int32_t one = pooling_ == Pooling::kLast ? n_tokens - 1 : 0;
    const bool is_one = pooling_ != Pooling::kMean && i == one && n_seen_ == 0;
    if (!is_mean && !is_one) continue;  // a preempted sequence computes some again
    for (size_t c = 0; c < width; ++c) sum_[c] += static_cast<double>(states[c]);
    ++n_seen_;
    if (is_one) return;
  }
}

std::vector<float> Pool::vector() {
  if (pooling_ == Pooling::kEach) return std::move(rows_);
  std::vector<float> out(sum_.size());
  const double n = std::max(1, n_seen_);
  for (size_t c = 0; c < out.size(); ++c) out[c] = static_cast<float>(sum_[c] / n);
  return out;
}

}  // namespace ibid
