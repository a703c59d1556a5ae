// How long steps of a model take, before any request has come: what the cost of steps begins with
// (engine/state/step_cost.h).
#pragma once

#include <vector>

#include "base/clock.h"
#include "engine/state/step_load.h"
#include "engine/step/batch_builder.h"
#include "worker/worker.h"

namespace ibid {

// Runs a step of one decode first, untimed: pages of weights come in. Then decodes of one and of a few sequences and
// pieces of prompts, the small ones first, until a twentieth of a second has gone. Keys and values go to the worker's
// first n_blocks blocks at most, which must be free. Never more than kMostMeasuredSteps.
std::vector<MeasuredStep> measure_steps(Worker& worker, const BatchLimits& limits, int32_t n_blocks,
                                        const Clock& clock);

}  // namespace ibid
