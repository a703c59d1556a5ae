// gemma 2: gemma 3 without norms of heads, with one RoPE for all layers, windows in every second layer, and soft caps.
#include <cmath>

#include "model/arch/architecture.h"
#include "model/arch/common.h"

namespace ibid::arch {
namespace {

constexpr int64_t kPeriod = 2;
constexpr double kScoresCap = 50.0, kLogitsCap = 30.0;

void finish(double scores_cap, double logits_cap, ModelConfig& config) {
  config.activation = FfnActivation::kGeluTanh;
  config.embedding_scale = std::sqrt(static_cast<float>(config.width));
  config.attention_soft_cap = static_cast<float>(scores_cap);
  config.logit_soft_cap = static_cast<float>(logits_cap);
}

}  // namespace

Result<ModelConfig> gemma2_from_gguf(const ModelFile& file) {
  ASSIGN_OR_RETURN(ModelConfig config, common_from_gguf(file, Shape::kGemma, /*interleaved=*/false));
  TRY(windows_from_gguf(file, kPeriod, config));
  // The 27B model divides by its width per head instead of its head size; newer files state it.
  for (LayerConfig& layer : config.layers) {
    if (config.n_layers == 46)
      layer.attention_scale = 1.0f / std::sqrt(static_cast<float>(config.width) / static_cast<float>(layer.n_heads));
    ASSIGN_OR_RETURN(const double scale, file.meta_float("gemma2.attention.scale", double{layer.attention_scale}));
    layer.attention_scale = static_cast<float>(scale);
  }
  ASSIGN_OR_RETURN(const double scores, file.meta_float("gemma2.attn_logit_softcapping", kScoresCap));
  ASSIGN_OR_RETURN(const double logits, file.meta_float("gemma2.final_logit_softcapping", kLogitsCap));
  finish(scores, logits, config);
  return config;
}

Result<ModelConfig> gemma2_from_folder(const ModelFile& file) {
  ASSIGN_OR_RETURN(ModelConfig config,
                   common_from_folder(file, Shape::kGemma, "",
                                      {.n_kv_heads = 4, .head_len = 256, .norm_eps = 1e-6, .tied_embedding = true}));
  TRY(must_be(file, "hidden_activation", "gelu_pytorch_tanh"));
  TRY(flag_must_be(file, "attention_bias", false));
  config.norm_offset = 1.0f;
  ASSIGN_OR_RETURN(RopeConfig rope, rope_from_folder(file, config, "", "rope_parameters", 10000.0));
  config.ropes.push_back(std::move(rope));
  ASSIGN_OR_RETURN(const int64_t window,
                   file.has_meta("sliding_window") ? read_window(file, "sliding_window") : Result<int64_t>(4096));
  TRY(windows_by_period(kPeriod, window, config));
  TRY(windows_from_layer_types(file, "", window, config));
  ASSIGN_OR_RETURN(const double scalar, file.meta_float("query_pre_attn_scalar", 256.0));
  if (!(scalar > 0)) return invalid("query_pre_attn_scalar is not positive", "query_pre_attn_scalar");
  for (LayerConfig& layer : config.layers) layer.attention_scale = static_cast<float>(1.0 / std::sqrt(scalar));
  ASSIGN_OR_RETURN(const double scores, file.meta_float("attn_logit_softcapping", kScoresCap));
  ASSIGN_OR_RETURN(const double logits, file.meta_float("final_logit_softcapping", kLogitsCap));
  finish(scores, logits, config);
  return config;
}

}  // namespace ibid::arch
