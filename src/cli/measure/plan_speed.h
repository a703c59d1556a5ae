// How fast a model will be here, without loading it: a few of its layers are loaded and run through the engine, and
// what each of them adds is extrapolated to all.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "base/result.h"
#include "host/loading.h"

namespace ibid::cli {

struct PredictedSpeed {
  double prefill = 0;   // tokens/s of a prompt of 512
  double one = 0;       // tokens/s of one stream at its beginning
  double position = 0;  // seconds that each token before a step makes it longer
  double streams = 0;   // of all n_streams at `depth`, together
  // What a step of kRowCounts[i] rows takes, in steps of one row: streams at their beginning, near what drafts take.
  std::array<double, 3> rows = {};
};
inline constexpr std::array<int32_t, 3> kRowCounts = {2, 3, 5};

// `sized`: by size(). Streams are measured with `depth` tokens of context each. `n_layers`: as if it had so many alone;
// 0: all.
Result<PredictedSpeed> predict_speed(const host::Loaded& sized, int32_t n_streams, int32_t depth, int64_t n_layers = 0);

// What speculation may bring beside that, by the formulas of spec/gain.h: for some rates of acceptance the best number
// of drafts and the gain, and below which rate it does not pay. `c`: what a draft costs, as a part of a step.
std::string speculation_advice(const PredictedSpeed& target, double c, int32_t max_drafts);

}  // namespace ibid::cli
