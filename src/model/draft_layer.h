// The one decoder layer that a draft head with attention has (spec/eagle_head.h), as the head's config.json describes
// it: that of a llama without biases of its own making. A GGUF file of such a head has the same keys.
#pragma once

#include "base/result.h"
#include "format/model_file.h"
#include "model/config.h"

namespace ibid {

// Checked (validate()): one layer, SiLU, one RoPE. `trained_context_len` is what the head was trained on and no bound.
Result<ModelConfig> read_draft_layer(const ModelFile& file);

}  // namespace ibid
