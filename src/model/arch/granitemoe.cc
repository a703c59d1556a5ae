// granitemoe: llama with experts, whose embeddings, scores, residuals and logits have scales of their own.
#include "model/arch/architecture.h"
#include "model/arch/common.h"

namespace ibid::arch {
namespace {

constexpr Router kRouter = {.score = RouterScore::kChosenSoftmax};

// The file divides by it.
Status set_logit_scale(double divisor, ModelConfig& config) {
  if (!(divisor > 0)) {
    return invalid("the model's logits are divided by " + std::to_string(divisor) + "; expected a positive number");
  }
  config.logit_scale = static_cast<float>(1.0 / divisor);
  return {};
}

Status set_scales(const ModelFile& file, const std::string& embedding, const std::string& residual,
                  const std::string& attention, const std::string& logits, ModelConfig& config) {
  ASSIGN_OR_RETURN(const double of_embedding, file.meta_float(embedding, 1.0));
  ASSIGN_OR_RETURN(const double of_residual, file.meta_float(residual, 1.0));
  ASSIGN_OR_RETURN(const double of_logits, file.meta_float(logits, 1.0));
  config.embedding_scale = static_cast<float>(of_embedding);
  config.residual_scale = static_cast<float>(of_residual);
  for (LayerConfig& layer : config.layers) {
    ASSIGN_OR_RETURN(const double scale, file.meta_float(attention, double{layer.attention_scale}));
    layer.attention_scale = static_cast<float>(scale);
  }
  return set_logit_scale(of_logits, config);
}

}  // namespace

Result<ModelConfig> granitemoe_from_gguf(const ModelFile& file) {
  ASSIGN_OR_RETURN(ModelConfig config, common_from_gguf(file, Shape::kLlama, /*interleaved=*/true, Experts::kRead));
  TRY(set_scales(file, "granitemoe.embedding_scale", "granitemoe.residual_scale", "granitemoe.attention.scale",
                 "granitemoe.logit_scale", config));
  TRY(experts_from_gguf(file, kRouter, config));
  return config;
}

Result<ModelConfig> granitemoe_from_folder(const ModelFile& file) {
  ASSIGN_OR_RETURN(ModelConfig config,
                   common_from_folder(file, Shape::kLlama, "", {.norm_eps = 1e-6, .experts = Experts::kRead}));
  TRY(must_be(file, "hidden_act", "silu"));
  TRY(flag_must_be(file, "attention_bias", false));
  TRY(set_scales(file, "embedding_multiplier", "residual_multiplier", "attention_multiplier", "logits_scaling",
                 config));
  if (!file.has_meta("attention_multiplier")) {
    for (LayerConfig& layer : config.layers) layer.attention_scale = 1;  // the architecture's own default
  }
  ASSIGN_OR_RETURN(RopeConfig rope, rope_from_folder(file, config, "", "rope_parameters", 10000.0));
  config.ropes.push_back(std::move(rope));
  TRY(experts_from_folder(file, "", {.router = kRouter, .reads_norm = false}, config));
  return config;
}

}  // namespace ibid::arch
