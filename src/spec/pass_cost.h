// PassCost: cost of a forward pass of n tokens, learned from passes: a + b n seconds, neither negative, by least
// squares of relative errors that forget older ones (engine/state/step_cost.h does the same for the engine's steps).
#pragma once

#include <algorithm>

namespace ibid {

class PassCost {
 public:
  bool is_known() const { return weight_ > 0; }
  // 0 before the first observation.
  double seconds(double n_tokens) const { return base_ + each_ * n_tokens; }
  // Maximum tokens of a pass within `limit` seconds.
  double tokens_within(double limit) const {
    return each_ > 0 ? std::max(0.0, (limit - base_) / each_) : limit >= base_ ? 1e9 : 0;
  }

  void observe(double n, double taken) {
    if (taken <= 0) return;
    const double expected = seconds(n);
    // A stalled pass weighs little.
    const double w = 1 / (std::max(taken, expected) * std::max(taken, expected));
    const auto add = [](double& sum, double x) { sum = kKept * sum + x; };
    add(weight_, w), add(n_, w * n), add(nn_, w * n * n), add(t_, w * taken), add(nt_, w * n * taken);
    // Until passes of several lengths separate the two terms, the weights are assumed to cost as much as
    // kTokensOfWeights tokens.
    const double estimate = t_ / (kTokensOfWeights * weight_ + n_);
    const double w0 = weight_ * (1 + kEstimateWeight), nn = nn_ * (1 + kEstimateWeight);
    const double t = t_ + kEstimateWeight * weight_ * kTokensOfWeights * estimate,
                 nt = nt_ + kEstimateWeight * nn_ * estimate;
    const double det = w0 * nn - n_ * n_;
    base_ = std::max(0.0, (t * nn - nt * n_) / det);
    each_ = std::max(0.0, (nt - base_ * n_) / nn);
    if (each_ == 0) base_ = t / w0;
  }

 private:
  static constexpr double kKept = 0.98, kEstimateWeight = 0.02, kTokensOfWeights = 8;
  double weight_ = 0, n_ = 0, nn_ = 0, t_ = 0, nt_ = 0;  // sums over passes
  double base_ = 0, each_ = 0;
};

}  // namespace ibid
