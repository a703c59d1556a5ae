// How fast a model will be here, without loading it: a few of its layers are loaded and run through the engine, and
// what each of them adds is extrapolated to all.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "cli/loading.h"

namespace ibid::cli {

struct PredictedSpeed {
  double prefill = 0;  // tokens/s of a prompt of 512
  double one = 0;      // tokens/s of one stream at its beginning
  double streams = 0;  // of all n_streams at `depth`, together
};

// `sized`: by size(). Streams are measured with `depth` tokens of context each.
Result<PredictedSpeed> predict_speed(const Loaded& sized, int32_t n_streams, int32_t depth);

}  // namespace ibid::cli
