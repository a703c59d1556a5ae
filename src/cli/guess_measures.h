// Measures guesses on a loaded model: has it answer without guesses while proposers guess along, so that all of them
// are asked behind every token of the same answers, and takes the time of that and of steps of several rows.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "cli/guess_gain.h"
#include "cli/loading.h"

namespace ibid::cli {

struct GuessRun {
  std::vector<std::vector<TokenId>> prompts;  // none empty; of those that the context does not hold, the end
  int32_t n_tokens = 64;                      // of each answer
  float temperature = 0;
};

// Of the look-up, and of what `limits` names beside it, under `name`. `loaded` is by the same limits, for one sequence.
Result<GuessMeasures> measure_guesses(const Loaded& loaded, const StepLimits& limits, const std::string& name,
                                      const GuessRun& run);

}  // namespace ibid::cli
