// A checkpoint's own layer that drafts the token after the next ("multi-token prediction": DeepSeek-AI, "DeepSeek-V3
// Technical Report", 2024, section 2.2; Xiaomi LLM-Core, "MiMo", 2025), presented as the file of a draft head
// (spec/heads/eagle_head.h), which runs it:
//     state = what the model's final norm makes of token P
//     x = fc [norm(embedding of token P + 1); norm(state)], MiMo's the other way about
//     one layer of the model's own kind: gated or latent attention, experts; logits = the model's outputs of norm(x)
// After a draft, norm(x) replaces the state that the model has not computed yet. If there are several such layers,
// which would each draft one further token, the first one is used repeatedly.
//
// Locations: `model.mtp_layers.0.*` of a folder (MiMo); `mtp.*` (fc, pre_fc_norm_embedding, pre_fc_norm_hidden, norm
// and layers.0.*: Qwen3-Next, Qwen3.5 and models trained the same way); `model.layers.*` numbered after the last one of
// a folder (eh_proj, enorm, hnorm, shared_head.*: DeepSeek, GLM); the corresponding `blk.*` of a GGUF (nextn.*).
#pragma once

#include <memory>
#include <string_view>

#include "base/result.h"
#include "format/model_file.h"
#include "model/config.h"

namespace ibid {

// A key of the result of mtp_layer_of() and of no other file: whether fc reads the state before the embedding.
inline constexpr std::string_view kMtpHiddenFirst = "mtp.hidden_first";

// The layer's tensors, in the memory of `model`, which outlives the result: fc, embed_norm, hidden_norm, norm, and
// lm_head and embed_tokens where the layer has its own; the others under the names of the model's layer 0. Errors: the
// model has no such layer.
Result<std::shared_ptr<const ModelFile>> mtp_layer_of(const ModelFile& model);

// The tensors of its layer alone, for load_layer() (model/model.h).
std::shared_ptr<const ModelFile> mtp_block_of(const ModelFile& layer);
bool is_of_mtp_block(std::string_view name);

// The configuration of that layer: that of the model's last layer with attention. Errors: ibid runs no such layer.
Result<ModelConfig> mtp_block_config(const ModelConfig& model, const ModelFile& layer);

}  // namespace ibid
