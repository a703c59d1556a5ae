// A checkpoint's own layer that drafts the token after the next ("multi-token prediction": DeepSeek-AI, "DeepSeek-V3
// Technical Report", 2024, section 2.2; Xiaomi LLM-Core, "MiMo", 2025), presented as the file of a draft head
// (spec/heads/eagle_head.h), which runs it:
//     state = what the model's final norm makes of token P
//     x = fc [norm(embedding of token P + 1); norm(state)], MiMo's the other way about
//     one decoder layer of the model's own shape; logits = the model's outputs of norm(x)
// After a draft, norm(x) replaces the state that the model has not computed yet. If there are several such layers,
// which would each draft one further token, the first one is used repeatedly.
//
// Locations: `model.mtp_layers.0.*` of a folder (MiMo); `mtp.*` (fc, pre_fc_norm_embedding, pre_fc_norm_hidden, norm
// and layers.0.*, as in Qwen3-Next and models trained the same way); `model.layers.*` numbered after the last one of a
// folder (eh_proj, enorm, hnorm, shared_head.*, as in DeepSeek); the corresponding `blk.*` of a GGUF (nextn.*).
#pragma once

#include <memory>
#include <string_view>

#include "base/result.h"
#include "format/model_file.h"

namespace ibid {

inline constexpr std::string_view kMtpArchitecture = "mtp";  // general.architecture of the result of mtp_layer_of()

// The layer's tensors under EagleHead's names, in the memory of `model`, which outlives the result. Errors: the model
// has no such layer, or has an architecture whose layers EagleHead cannot run.
Result<std::shared_ptr<const ModelFile>> mtp_layer_of(const ModelFile& model);

}  // namespace ibid
