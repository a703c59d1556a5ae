// Searches for layers that a model can skip when it drafts for itself ("self-speculation": Zhang et al., "Draft &
// Verify: Lossless Large Language Model Acceleration via Self-Speculative Decoding", 2023, whose search is Bayesian).
// This search is greedy: each round skips the layer without which the model still agrees most with the whole model. The
// expected gain is that of spec/gain.h, from the agreement and the costs of layers and rows.
//
// Deterministic: the same costs and agreements give the same layers. One thread.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/result.h"

namespace ibid {

// Relative to the cost of a step of one row.
struct LayerCosts {
  double layer = 0;  // one layer
  double row = 0;    // each further row
};

struct LayerChoice {
  std::vector<int32_t> skipped;  // ascending, not empty
  double agreement = 0;          // how often both predict the same token
  double cost = 1;               // cost of a draft, relative to a step
  int32_t n_drafts = 1;          // the best number of drafts a step, at least 1
  double gain = 0;               // expected speedup over decoding without drafts
};

// How often the model without these layers, ascending, predicts the same token as the whole model: 0 to 1.
using LayerAgreement = std::function<Result<double>(std::span<const int32_t> skipped)>;

// The expected gain of a model without these layers.
LayerChoice layer_choice(std::vector<int32_t> skipped, double agreement, const LayerCosts& costs, int32_t max_drafts);

// The best choice for each number of skipped layers, from one on, until the last agreement could not gain more than the
// best choice so far even at the lowest possible cost; at most `most`, and never all layers. Calls `agreement` at most
// `most` n_layers times. Returns the first error of `agreement`.
Result<std::vector<LayerChoice>> search_layers(int32_t n_layers, int32_t most, const LayerCosts& costs,
                                               int32_t max_drafts, const LayerAgreement& agreement);

// The choice with the largest gain; of equals the one that skips the fewest layers. `choices` is not empty.
const LayerChoice& best_choice(std::span<const LayerChoice> choices);

}  // namespace ibid
