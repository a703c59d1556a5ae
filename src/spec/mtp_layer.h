// The layer that a checkpoint may bring along to draft the token after the next ("multi-token prediction": DeepSeek-AI,
// "DeepSeek-V3 Technical Report", 2024, section 2.2; Xiaomi LLM-Core, "MiMo", 2025), as the file of a draft head
// (spec/eagle_head.h), which runs it:
//     state = what the model's final norm makes of token P
//     x = fc [norm(embedding of token P + 1); norm(state)], MiMo's the other way about
//     one decoder layer of the model's own shape; logits = the model's outputs of norm(x)
// After a draft norm(x) stands in the place of the state that the model has not made yet. Of several such layers,
// which would draft one token further each, the first is used again and again.
//
// Where they are: `model.mtp_layers.0.*` of a folder (MiMo); `mtp.*` (fc, pre_fc_norm_embedding, pre_fc_norm_hidden,
// norm and layers.0.*, as Qwen3-Next's and what is trained in its manner); `model.layers.*` numbered after the last
// one of a folder (eh_proj, enorm, hnorm, shared_head.*, as DeepSeek's); `blk.*` so numbered of a GGUF (nextn.*).
#pragma once

#include <memory>
#include <string_view>

#include "base/result.h"
#include "format/model_file.h"

namespace ibid {

inline constexpr std::string_view kMtpArchitecture = "mtp";  // general.architecture of what mtp_layer_of() makes

// The layer's tensors under the names of EagleHead, where they lie in `model`, which outlives it. Errors: the model has
// no such layer, or is of an architecture whose layers EagleHead cannot run.
Result<std::shared_ptr<const ModelFile>> mtp_layer_of(const ModelFile& model);

}  // namespace ibid
