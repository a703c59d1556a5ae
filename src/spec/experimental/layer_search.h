// Which layers a model can do without when it drafts for itself ("self-speculation": Zhang et al., "Draft & Verify:
// Lossless Large Language Model Acceleration via Self-Speculative Decoding", 2023, whose search is Bayesian). Here one
// layer after the other is left out: each time the one without which the model still agrees most with the whole one.
// What is then believed is the gain of spec/gain.h, by that agreement and by what layers and rows cost.
//
// Deterministic: the same costs and agreements give the same layers. One thread.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/result.h"

namespace ibid {

// As parts of what a step of one row takes.
struct LayerCosts {
  double layer = 0;  // a layer
  double row = 0;    // each further row
};

struct LayerChoice {
  std::vector<int32_t> skipped;  // ascending, not empty
  double agreement = 0;          // how often both say the same token
  double cost = 1;               // of a draft, as a part of a step
  int32_t n_drafts = 1;          // the best number of drafts a step, at least 1
  double gain = 0;               // how many times as fast as without drafts, by these
};

// How often the model without these layers, ascending, says what the whole one does: from 0 to 1.
using LayerAgreement = std::function<Result<double>(std::span<const int32_t> skipped)>;

// What a model without these layers would bring.
LayerChoice layer_choice(std::vector<int32_t> skipped, double agreement, const LayerCosts& costs, int32_t max_drafts);

// The choice of each number of layers, from one on, until what agrees no more than the last could not be a better one
// however few layers it had; at most `most`, and never all. Asks for agreement at most `most` n_layers times. The first
// error of `agreement` is its own.
Result<std::vector<LayerChoice>> search_layers(int32_t n_layers, int32_t most, const LayerCosts& costs,
                                               int32_t max_drafts, const LayerAgreement& agreement);

// The one that gains most; of equals the one with the fewest layers left out. `choices` is not empty.
const LayerChoice& best_choice(std::span<const LayerChoice> choices);

}  // namespace ibid
