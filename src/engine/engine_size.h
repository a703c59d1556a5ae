// How big an engine is: options completed and checked once at start-up.
#pragma once

#include "engine/state/engine_options.h"
#include "worker/forward_pass.h"

namespace ibid {

// R of its steps. Where every place is taken, drafts of a few sequences have rows of their own; of more they seldom
// pay.
int32_t rows_of(const EngineOptions& options);

// Of the states of sequences and of snapshots, on the device, where one state has so many: what was asked for, or four
// states for each sequence.
int64_t states_bytes_of(int64_t state_bytes, const EngineOptions& options);

// Fills in what was left to us (kv_bytes, max_rows) and refuses what cannot work, with the numbers.
Result<EngineOptions> size_engine(const ModelFacts& model, EngineOptions options);

}  // namespace ibid
