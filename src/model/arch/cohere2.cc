// cohere 2 (command-r7b): windows with RoPE in three of four layers, and no positions in the fourth; neighbours turn in
// either container.
#include "model/arch/architecture.h"
#include "model/arch/common.h"

namespace ibid::arch {
namespace {

constexpr int64_t kPeriod = 4;

void finish(double logit_scale, ModelConfig& config) {
  config.logit_scale = static_cast<float>(logit_scale);
  for (LayerConfig& layer : config.layers) layer.rope = layer.window != 0 ? 0 : kNoRope;
}

}  // namespace

Result<ModelConfig> cohere2_from_gguf(const ModelFile& file) {
  ASSIGN_OR_RETURN(ModelConfig config, common_from_gguf(file, Shape::kParallel, /*interleaved=*/true));
  TRY(windows_from_gguf(file, kPeriod, config));
  ASSIGN_OR_RETURN(const double scale, file.meta_float("cohere2.logit_scale"));
  finish(scale, config);
  return config;
}

Result<ModelConfig> cohere2_from_folder(const ModelFile& file) {
  ASSIGN_OR_RETURN(ModelConfig config,
                   common_from_folder(file, Shape::kParallel, "",
                                      {.norm_eps = 1e-5, .norm_eps_key = "layer_norm_eps", .tied_embedding = true}));
  TRY(must_be(file, "hidden_act", "silu"));
  TRY(flag_must_be(file, "attention_bias", false));
  TRY(flag_must_be(file, "use_qk_norm", false));
  ASSIGN_OR_RETURN(RopeConfig rope, rope_from_folder(file, config, "", "rope_parameters", 10000.0));
  rope.interleaved = true;
  config.ropes.push_back(std::move(rope));
  ASSIGN_OR_RETURN(const int64_t window,
                   file.has_meta("sliding_window") ? read_window(file, "sliding_window") : Result<int64_t>(4096));
  ASSIGN_OR_RETURN(const int64_t period, file.meta_int("sliding_window_pattern", kPeriod));
  TRY(windows_by_period(period, window, config));
  TRY(windows_from_layer_types(file, "", window, config));
  ASSIGN_OR_RETURN(const double scale, file.meta_float("logit_scale", 0.0625));
  finish(scale, config);
  return config;
}

}  // namespace ibid::arch
