// The one decoder layer that a draft head with attention has (spec/heads/eagle_head.h), as the head's file describes
// it: that of a llama without biases of its own making. Three kinds of files describe it: a config.json of the papers'
// programs (a GGUF that tools/pack_eagle.py makes has the same keys); one of speculators, where it lies within
// "transformer_layer_config"; and a GGUF of architecture "eagle3", which llama.cpp's converter makes.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "format/model_file.h"
#include "model/config.h"

namespace ibid {

// Checked (validate()): one layer, SiLU, one RoPE. `trained_context_len` is what the head was trained on and no bound;
// vocab_size is not read.
Result<ModelConfig> read_draft_layer(const ModelFile& file);

// Whether llama.cpp's converter made it.
bool is_eagle3_gguf(const ModelFile& file);
// What the papers' programs call a tensor of such a file, without ".weight"; a name that none has stays as it is.
std::string eagle3_folder_name(std::string_view gguf_name);

inline constexpr std::string_view kSpeculatorsLayer = "transformer_layer_config.";

}  // namespace ibid
