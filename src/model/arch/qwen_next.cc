// Qwen3-Next and Qwen3.5 (and 3.6 to 3.8, which are called so too), dense and with experts: three layers of four are
// gated delta nets, the others gated attention of which a part of each head turns. A folder of Qwen3.5 may have a
// vision tower beside the text model, which stays unread.
//
// Folders keep norm weights less 1; a delta net's own norm they keep whole.
#include <algorithm>
#include <string>
#include <vector>

#include "model/arch/architecture.h"
#include "model/arch/common.h"

namespace ibid::arch {

Status set_delta_net(const DeltaHeads& heads, int64_t conv_len, LayerConfig& layer) {
  if (heads.n_value_heads % heads.n_key_heads != 0) {
    return invalid("the model's delta nets have " + std::to_string(heads.n_value_heads) + " value heads and " +
                   std::to_string(heads.n_key_heads) + " key heads; the first must be a multiple of the second");
  }
  set_no_attention(Mixer::kState, layer);
  layer.recurrence = Recurrence::kDeltaNet;
  layer.delta = heads;
  layer.conv_len = conv_len;
  layer.conv_channels = heads.qkv_len();
  layer.state_len = layer.conv_state_len() + heads.state_len();
  return {};
}

namespace {

constexpr Router kRouter = {.normalises = true};
constexpr int64_t kMostHeads = 4096, kMostLen = 65536, kMostTaps = 65536;  // that state_len may be multiplied from

Result<ModelConfig> from_gguf(const ModelFile& file, bool tiled) {
  ASSIGN_OR_RETURN(ModelConfig config, common_from_gguf(file, Shape::kLlama, /*interleaved=*/false, Experts::kRead));
  const std::string arch = config.architecture + ".";
  config.qk_norm = config.attention_gate = true;
  TRY(rope_axes_from_gguf(file, /*in_turn=*/true, config));
  DeltaHeads heads = {.tiled = tiled};
  ASSIGN_OR_RETURN(heads.n_key_heads, bounded_size(file, arch + "ssm.group_count", kMostHeads));
  ASSIGN_OR_RETURN(heads.n_value_heads, bounded_size(file, arch + "ssm.time_step_rank", kMostHeads));
  ASSIGN_OR_RETURN(heads.key_len, bounded_size(file, arch + "ssm.state_size", kMostLen));
  ASSIGN_OR_RETURN(const int64_t inner, bounded_size(file, arch + "ssm.inner_size", int64_t{1} << 32));
  if (inner % heads.n_value_heads != 0) {
    return invalid("the model's delta nets have outputs of " + std::to_string(inner) + " for " +
                       std::to_string(heads.n_value_heads) + " heads; expected as many for each",
                   arch + "ssm.inner_size");
  }
  heads.value_len = inner / heads.n_value_heads;
  ASSIGN_OR_RETURN(const int64_t conv_len, bounded_size(file, arch + "ssm.conv_kernel", kMostTaps));
  std::vector<int64_t> is_recurrent;
  if (const std::string key = arch + "attention.recurrent_layers"; file.has_meta(key)) {
    ASSIGN_OR_RETURN(is_recurrent, file.meta_ints(key));
    if (std::ssize(is_recurrent) < config.n_layers) {
      return invalid("key " + in_quotes(key) + " has " + std::to_string(is_recurrent.size()) + " values for " +
                         std::to_string(config.n_layers) + " layers",
                     key);
    }
  } else {
    const std::string every = arch + "full_attention_interval";
    ASSIGN_OR_RETURN(const int64_t interval, file.meta_int(every, 4));
    if (interval < 1) {
      return invalid("every " + std::to_string(interval) + "th layer attends; expected 1 or more", every);
    }
    for (int64_t l = 0; l < config.n_layers; ++l) is_recurrent.push_back((l + 1) % interval != 0);
  }
  for (size_t l = 0; l < config.layers.size(); ++l) {
    if (is_recurrent[l] != 0) TRY(set_delta_net(heads, conv_len, config.layers[l]));
  }
  ASSIGN_OR_RETURN(const int64_t n_experts, file.meta_int(arch + "expert_count", 0));
  if (n_experts != 0) TRY(experts_from_gguf(file, kRouter, config));
  return config;
}

// Whether each layer of a folder is a delta net.
Result<std::vector<bool>> delta_layers(const ModelFile& file, const std::string& prefix, int64_t n_layers) {
  std::vector<bool> out(static_cast<size_t>(n_layers));
  if (const std::string key = prefix + "layer_types"; file.has_meta(key)) {
    ASSIGN_OR_RETURN(const std::vector<std::string> types, file.meta_strings(key));
    TRY(check_layer_types(types.size(), n_layers, key));
    for (size_t l = 0; l < types.size(); ++l) {
      out[l] = types[l] == "linear_attention";
      if (out[l] || types[l] == "full_attention") continue;
      return unsupported("layer " + std::to_string(l) + " is of type " + in_quotes(types[l]) +
                             "; ibid runs linear_attention and full_attention",
                         key);
    }
    return out;
  }
  const std::string key = prefix + "full_attention_interval";
  ASSIGN_OR_RETURN(const int64_t interval, file.meta_int(key, 4));
  if (interval < 1) return invalid("every " + std::to_string(interval) + "th layer attends; expected 1 or more", key);
  for (int64_t l = 0; l < n_layers; ++l) out[static_cast<size_t>(l)] = (l + 1) % interval != 0;
  return out;
}

}  // namespace

Result<ModelConfig> qwen3next_from_gguf(const ModelFile& file) { return from_gguf(file, /*tiled=*/false); }
Result<ModelConfig> qwen35_from_gguf(const ModelFile& file) { return from_gguf(file, /*tiled=*/true); }

Result<ModelConfig> qwen3next_from_folder(const ModelFile& file) {
  const std::string prefix = file.has_meta("text_config.hidden_size") ? "text_config." : "";
  const bool has_experts = file.has_meta(prefix + "num_experts");
  ASSIGN_OR_RETURN(ModelConfig config,
                   common_from_folder(file, Shape::kLlama, prefix,
                                      {.head_len = 256,
                                       .trained_context_len = 32768,
                                       .norm_eps = 1e-6,
                                       .ffn_len_key = file.has_meta(prefix + "intermediate_size") || !has_experts
                                                          ? "intermediate_size"
                                                          : "moe_intermediate_size",
                                       .experts = Experts::kRead}));
  TRY(must_be(file, prefix + "hidden_act", "silu"));
  TRY(flag_must_be(file, prefix + "attention_bias", false));
  config.qk_norm = config.attention_gate = true;
  config.norm_offset = 1;
  ASSIGN_OR_RETURN(RopeConfig rope, rope_from_folder(file, config, prefix, prefix + "rope_parameters", 10000.0));
  const bool gives_part = file.has_meta(prefix + "partial_rotary_factor") ||
                          file.has_meta(prefix + "rope_parameters.partial_rotary_factor");
  if (!gives_part) rope.n_pairs /= 4;
  config.ropes.push_back(std::move(rope));
  TRY(rope_axes_from_folder(file, prefix, config));
  DeltaHeads heads;
  ASSIGN_OR_RETURN(heads.n_key_heads, bounded_size(file, prefix + "linear_num_key_heads", kMostHeads));
  ASSIGN_OR_RETURN(heads.n_value_heads, bounded_size(file, prefix + "linear_num_value_heads", kMostHeads));
  ASSIGN_OR_RETURN(heads.key_len, bounded_size(file, prefix + "linear_key_head_dim", kMostLen));
  ASSIGN_OR_RETURN(heads.value_len, bounded_size(file, prefix + "linear_value_head_dim", kMostLen));
  ASSIGN_OR_RETURN(const int64_t conv_len, bounded_size(file, prefix + "linear_conv_kernel_dim", kMostTaps));
  ASSIGN_OR_RETURN(const std::vector<bool> is_delta, delta_layers(file, prefix, config.n_layers));
  for (size_t l = 0; l < config.layers.size(); ++l) {
    if (is_delta[l]) TRY(set_delta_net(heads, conv_len, config.layers[l]));
  }
  // Folders of Qwen3-Next have a layer that drafts and no key for it.
  const auto drafts = [](const TensorInfo& t) {
    return t.name.starts_with("mtp.") || t.name.starts_with("model.mtp.");
  };
  if (std::ranges::any_of(file.tensors(), drafts)) config.n_mtp_layers = std::max<int64_t>(1, config.n_mtp_layers);
  if (!has_experts) return config;
  TRY(experts_from_folder(
      file, prefix, {.router = kRouter, .shared_gate = true, .shared_len = "shared_expert_intermediate_size"}, config));
  return config;
}

}  // namespace ibid::arch
