// qwen2 (biases of q, k and v) and qwen3 (norms of q's and k's heads instead), both with experts, and Qwen3-VL: qwen3
// beside a vision tower (model/vision/), whose features its first layers add.
#include "model/arch/architecture.h"
#include "model/arch/common.h"

namespace ibid::arch {
namespace {

constexpr bool kInterleaved = false;

Result<ModelConfig> from_gguf(const ModelFile& file) { return common_from_gguf(file, Shape::kLlama, kInterleaved); }

Result<ModelConfig> from_folder(const ModelFile& file, const FolderDefaults& defaults, const std::string& prefix = "") {
  ASSIGN_OR_RETURN(ModelConfig config, common_from_folder(file, Shape::kLlama, prefix, defaults));
  TRY(must_be(file, prefix + "hidden_act", "silu"));
  ASSIGN_OR_RETURN(RopeConfig rope, rope_from_folder(file, config, prefix, prefix + "rope_parameters", 10000.0));
  config.ropes.push_back(std::move(rope));
  ASSIGN_OR_RETURN(bool slides, file.meta_bool(prefix + "use_sliding_window", false));
  if (!slides) return config;
  ASSIGN_OR_RETURN(int64_t window, read_window(file, "sliding_window"));
  ASSIGN_OR_RETURN(int64_t n_full, file.meta_int("max_window_layers", 28));
  for (size_t i = 0; i < config.layers.size(); ++i) {
    if (static_cast<int64_t>(i) >= n_full) config.layers[i].window = static_cast<int32_t>(window);
  }
  TRY(windows_from_layer_types(file, "", window, config));
  return config;
}

}  // namespace

Result<ModelConfig> qwen2_from_gguf(const ModelFile& file) {
  ASSIGN_OR_RETURN(ModelConfig config, from_gguf(file));
  config.qkv_bias = true;
  return config;
}

Result<ModelConfig> qwen2_from_folder(const ModelFile& file) {
  ASSIGN_OR_RETURN(ModelConfig config, from_folder(file, {}));
  config.qkv_bias = true;
  return config;
}

Result<ModelConfig> qwen3_from_gguf(const ModelFile& file) {
  ASSIGN_OR_RETURN(ModelConfig config, from_gguf(file));
  config.qk_norm = true;
  return config;
}

Result<ModelConfig> qwen3_from_folder(const ModelFile& file) {
  TRY(flag_must_be(file, "attention_bias", false));
  ASSIGN_OR_RETURN(ModelConfig config, from_folder(file, {.head_len = 128}));
  config.qk_norm = true;
  return config;
}

// GGUF has no key for whether the weights of experts are normalised: qwen2's are not, qwen3's are.
Result<ModelConfig> qwen2moe_from_gguf(const ModelFile& file) {
  ASSIGN_OR_RETURN(ModelConfig config, common_from_gguf(file, Shape::kLlama, kInterleaved, Experts::kRead));
  config.qkv_bias = true;
  TRY(experts_from_gguf(file, {}, config));
  return config;
}

Result<ModelConfig> qwen2moe_from_folder(const ModelFile& file) {
  ASSIGN_OR_RETURN(ModelConfig config, from_folder(file, {.experts = Experts::kRead}));
  ASSIGN_OR_RETURN(config.qkv_bias, file.meta_bool("qkv_bias", true));
  TRY(experts_from_folder(file, "", {.shared_gate = true, .shared_len = "shared_expert_intermediate_size"}, config));
  return config;
}

Result<ModelConfig> qwen3moe_from_gguf(const ModelFile& file) {
  ASSIGN_OR_RETURN(ModelConfig config, common_from_gguf(file, Shape::kLlama, kInterleaved, Experts::kRead));
  config.qk_norm = true;
  TRY(experts_from_gguf(file, {.normalises = true}, config));
  return config;
}

Result<ModelConfig> qwen3moe_from_folder(const ModelFile& file) {
  TRY(flag_must_be(file, "attention_bias", false));
  ASSIGN_OR_RETURN(ModelConfig config, from_folder(file, {.experts = Experts::kRead}));
  config.qk_norm = true;
  TRY(experts_from_folder(file, "", {}, config));
  return config;
}

Result<ModelConfig> qwen3vl_from_gguf(const ModelFile& file) {
  ASSIGN_OR_RETURN(ModelConfig config, common_from_gguf(file, Shape::kLlama, kInterleaved, Experts::kRead));
  config.qk_norm = true;
  TRY(rope_axes_from_gguf(file, /*in_turn=*/true, config));
  const std::string arch = config.architecture + ".", added = arch + "n_deepstack_layers";
  ASSIGN_OR_RETURN(const int64_t n_added, file.meta_int(added, 0));
  TRY(set_picture_layers(n_added, added, config));
  ASSIGN_OR_RETURN(const int64_t n_experts, file.meta_int(arch + "expert_count", 0));
  if (n_experts != 0) TRY(experts_from_gguf(file, {.normalises = true}, config));
  return config;
}

Result<ModelConfig> qwen3vl_from_folder(const ModelFile& file) {
  const std::string prefix = file.has_meta("text_config.hidden_size") ? "text_config." : "";
  TRY(flag_must_be(file, prefix + "attention_bias", false));
  ASSIGN_OR_RETURN(ModelConfig config, from_folder(file, {.head_len = 128}, prefix));
  config.qk_norm = true;
  TRY(rope_axes_from_folder(file, prefix, config));
  const std::string added = "vision_config.deepstack_visual_indexes";
  if (file.has_meta(added)) {
    ASSIGN_OR_RETURN(const std::vector<int64_t> layers, file.meta_ints(added));
    TRY(set_picture_layers(std::ssize(layers), added, config));
  }
  return config;
}

}  // namespace ibid::arch
