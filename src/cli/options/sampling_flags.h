// How tokens are chosen, as flags: one for each such field of the API, out of the same table, so that --top-p has the
// range, the default and the sentences of top_p.
#pragma once

#include <string>

#include "base/json.h"
#include "server/fields/parameters.h"
#include "server/fields/sampling_defaults.h"

namespace ibid::cli {

// Fields by the API's names, as a request would have them.
using SamplingFlags = Json::Object;

// Reads the value of one field as it was typed, and puts it into `flags` in the place of an earlier one. The error is
// the API's sentence. A field that takes several texts gathers them.
Status set_sampling(SamplingFlags& flags, const Parameter& parameter, const std::string& text);

// How `ibid run` and `ibid serve` sample what names nothing: the model's own numbers, with a warning in the log for
// each that is out of its range, and the flags over them.
SamplingDefaults sampling_defaults(const ModelFile& file, const SamplingFlags& flags);

}  // namespace ibid::cli
