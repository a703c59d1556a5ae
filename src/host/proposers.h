// Proposers that a model has besides the look-up: a draft model, heads, or stores of other texts. Those that come with
// ibid are found by the digest of the model that they were trained on.
#pragma once

#include <memory>

#include "base/result.h"
#include "engine/engine.h"
#include "host/loading.h"

namespace ibid::host {

// Checks that those of `limits` may draft for `out`'s model, and adds what they will hold to its sum.
// A draft model may be fetched.
Status size_proposers(const StepLimits& limits, Loaded& out, const OnProgress& progress = {});

// Has `engine` draft by `loaded`'s proposer too, if there is one. The latter outlives the former.
Status use_proposers(Engine& engine, const Loaded& loaded, const StepLimits& limits);

// That proposer alone, without the look-up, for who asks it beside the engine's own; null: there is none.
Result<std::unique_ptr<Proposer>> proposer_of(Engine& engine, const Loaded& loaded, const StepLimits& limits);

}  // namespace ibid::host
