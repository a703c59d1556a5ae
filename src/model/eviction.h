// Whether a model's keys and values may be evicted while a sequence goes on (engine/state/kv_eviction.h).
#pragma once

#include "model/config.h"

namespace ibid {

// Why not, as the end of "this model has ..."; null: they may. Scores are those of plain attention over all earlier
// places (kernels/kept_rows.h), and a sequence has as many rows in every layer.
const char* what_forbids_eviction(const ModelConfig& config);

}  // namespace ibid
