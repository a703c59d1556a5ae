// Measures drafts on a loaded model: has it answer without drafts while proposers draft along, so that all of them
// are asked after every token of the same answers, and takes the time of that and of steps of several rows.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "cli/measure/draft_gain.h"
#include "host/loading.h"

namespace ibid::cli {

struct DraftRun {
  std::vector<std::vector<TokenId>> prompts;  // none empty; of those that the context does not hold, the end
  int32_t n_tokens = 64;                      // of each answer
  float temperature = 0;
};

// Of the look-up, and of what `limits` names beside it, under `name`. `loaded` is by the same limits, for one sequence.
Result<DraftMeasures> measure_drafts(const host::Loaded& loaded, const host::StepLimits& limits,
                                     const std::string& name, const DraftRun& run);

}  // namespace ibid::cli
