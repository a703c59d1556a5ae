// olmo 2, and olmo 3, which GGUF calls olmo2: one norm over all heads of q, and of k; olmo 3 has windows in three of
// four layers, whose RoPE is not scaled.
#include "model/arch/architecture.h"
#include "model/arch/common.h"

namespace ibid::arch {
namespace {

constexpr int64_t kPeriod = 4;
constexpr int kFull = 0, kLocal = 1;  // indices of ropes, where there are windows

// The RoPE of layers with a window, beside the one that is there.
void put_local_rope(double base, ModelConfig& config) {
  RopeConfig local;
  local.n_pairs = config.ropes[kFull].n_pairs;
  local.base = base;
  config.ropes.push_back(std::move(local));
  for (LayerConfig& layer : config.layers) layer.rope = layer.window != 0 ? kLocal : kFull;
}

}  // namespace

Result<ModelConfig> olmo2_from_gguf(const ModelFile& file) {
  ASSIGN_OR_RETURN(ModelConfig config, common_from_gguf(file, Shape::kPostNorm, /*interleaved=*/false));
  config.qk_norm = config.qk_norm_whole = true;
  ASSIGN_OR_RETURN(const int64_t window, read_window(file, "olmo2.attention.sliding_window"));
  if (window == 0) return config;
  TRY(windows_from_gguf(file, kPeriod, config));
  ASSIGN_OR_RETURN(const double base, file.meta_float("olmo2.rope.freq_base_swa", config.ropes[kFull].base));
  put_local_rope(base, config);
  return config;
}

Result<ModelConfig> olmo2_from_folder(const ModelFile& file) {
  ASSIGN_OR_RETURN(ModelConfig config, common_from_folder(file, Shape::kPostNorm, "", {.norm_eps = 1e-5}));
  TRY(must_be(file, "hidden_act", "silu"));
  TRY(flag_must_be(file, "attention_bias", false));
  config.qk_norm = config.qk_norm_whole = true;
  ASSIGN_OR_RETURN(RopeConfig rope, rope_from_folder(file, config, "", "rope_parameters", 10000.0));
  config.ropes.push_back(std::move(rope));
  return config;
}

Result<ModelConfig> olmo3_from_folder(const ModelFile& file) {
  ASSIGN_OR_RETURN(ModelConfig config, common_from_folder(file, Shape::kPostNorm, "", {.norm_eps = 1e-5}));
  TRY(must_be(file, "hidden_act", "silu"));
  TRY(flag_must_be(file, "attention_bias", false));
  config.qk_norm = config.qk_norm_whole = true;
  ASSIGN_OR_RETURN(RopeConfig rope, rope_from_folder(file, config, "", "rope_parameters.full_attention", 500000.0));
  ASSIGN_OR_RETURN(const double old_base, file.meta_float("rope_theta", 500000.0));
  ASSIGN_OR_RETURN(const double base, file.meta_float("rope_parameters.sliding_attention.rope_theta", old_base));
  TRY(must_be(file, "rope_parameters.sliding_attention.rope_type", "default"));
  config.ropes.push_back(std::move(rope));
  ASSIGN_OR_RETURN(const int64_t window,
                   file.has_meta("sliding_window") ? read_window(file, "sliding_window") : Result<int64_t>(4096));
  TRY(windows_by_period(kPeriod, window, config));
  TRY(windows_from_layer_types(file, "", window, config));
  put_local_rope(base, config);
  return config;
}

}  // namespace ibid::arch
