#include "sample/log_probs.h"

#include <algorithm>
#include <array>
#include <limits>

#include "kernels/math.h"
#include "sample/sampler.h"

namespace ibid {

float log_sum_exp(std::span<const float> logits) {
  float max = -std::numeric_limits<float>::infinity();
  for (float z : logits) max = std::max(max, z);
  std::array<float, 16> lane{};
  for (size_t i = 0; i < logits.size(); ++i) lane[i % 16] += math::exp(logits[i] - max);
  for (size_t width = 8; width > 0; width /= 2) {
    for (size_t i = 0; i < width; ++i) lane[i] += lane[i + width];
  }
  return max + math::log(lane[0]);
}

Sample score_row(std::span<const float> logits, TokenId chosen, int32_t n_top) {
  float total = log_sum_exp(logits);
  Sample out;
  out.chosen = {.token = chosen, .raw = logits[static_cast<size_t>(raw(chosen))] - total};
  if (n_top <= 0) return out;
  std::vector<Candidate> best;
  auto before = [](const Candidate& a, const Candidate& b) {
    return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
  };
  for (size_t i = 0; i < logits.size(); ++i) {
    Candidate c{logits[i], static_cast<int32_t>(i)};
    if (static_cast<int32_t>(best.size()) == n_top && !before(c, best.back())) continue;
    best.insert(std::upper_bound(best.begin(), best.end(), c, before), c);
    if (static_cast<int32_t>(best.size()) > n_top) best.pop_back();
  }
  for (const Candidate& c : best) out.top.push_back({.token = TokenId{c.id}, .raw = c.logit - total});
  return out;
}

}  // namespace ibid
