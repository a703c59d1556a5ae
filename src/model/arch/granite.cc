// granite and granitemoe: llama, dense or with experts, whose embeddings, scores, residuals and logits have scales of
// their own.
#include "model/arch/architecture.h"
#include "model/arch/common.h"

namespace ibid::arch {
namespace {

struct ScaleKeys {
  std::string embedding, residual, attention, logits;
};

Status scales_from_file(const ModelFile& file, const ScaleKeys& keys, ModelConfig& config) {
  ASSIGN_OR_RETURN(const double of_embedding, file.meta_float(keys.embedding, 1.0));
  ASSIGN_OR_RETURN(const double of_residual, file.meta_float(keys.residual, 1.0));
  ASSIGN_OR_RETURN(const double of_logits, file.meta_float(keys.logits, 1.0));
  config.embedding_scale = static_cast<float>(of_embedding);
  config.residual_scale = static_cast<float>(of_residual);
  for (LayerConfig& layer : config.layers) {
    ASSIGN_OR_RETURN(const double scale, file.meta_float(keys.attention, double{layer.attention_scale}));
    layer.attention_scale = static_cast<float>(scale);
  }
  if (!(of_logits > 0)) {
    return invalid("the model's logits are divided by " + std::to_string(of_logits) + "; expected a positive number",
                   keys.logits);
  }
  config.logit_scale = static_cast<float>(1.0 / of_logits);
  return {};
}

constexpr Router kRouter = {.score = RouterScore::kChosenSoftmax};

Result<ModelConfig> from_gguf(const ModelFile& file, Experts experts) {
  ASSIGN_OR_RETURN(ModelConfig config, common_from_gguf(file, Shape::kLlama, /*interleaved=*/true, experts));
  TRY(granite_scales_from_gguf(file, config));
  return config;
}

Result<ModelConfig> from_folder(const ModelFile& file, Experts experts) {
  ASSIGN_OR_RETURN(ModelConfig config,
                   common_from_folder(file, Shape::kLlama, "", {.norm_eps = 1e-6, .experts = experts}));
  TRY(must_be(file, "hidden_act", "silu"));
  TRY(flag_must_be(file, "attention_bias", false));
  TRY(flag_must_be(file, "mlp_bias", false));
  TRY(granite_scales_from_folder(file, config));
  ASSIGN_OR_RETURN(RopeConfig rope, rope_from_folder(file, config, "", "rope_parameters", 10000.0));
  config.ropes.push_back(std::move(rope));
  return config;
}

}  // namespace

Status granite_scales_from_gguf(const ModelFile& file, ModelConfig& config) {
  const std::string arch = config.architecture + ".";
  return scales_from_file(file,
                          {.embedding = arch + "embedding_scale",
                           .residual = arch + "residual_scale",
                           .attention = arch + "attention.scale",
                           .logits = arch + "logit_scale"},
                          config);
}

Status granite_scales_from_folder(const ModelFile& file, ModelConfig& config) {
  TRY(scales_from_file(file,
                       {.embedding = "embedding_multiplier",
                        .residual = "residual_multiplier",
                        .attention = "attention_multiplier",
                        .logits = "logits_scaling"},
                       config));
  if (!file.has_meta("attention_multiplier")) {
    for (LayerConfig& layer : config.layers) layer.attention_scale = 1;  // the architecture's own default
  }
  return {};
}

Result<ModelConfig> granite_from_gguf(const ModelFile& file) {
  ASSIGN_OR_RETURN(ModelConfig config, from_gguf(file, Experts::kRefused));
  ASSIGN_OR_RETURN(const bool rotates, file.meta_bool("granite.rope.scaling.finetuned", true));
  for (LayerConfig& layer : config.layers) layer.rope = rotates ? 0 : kNoRope;
  return config;
}

Result<ModelConfig> granite_from_folder(const ModelFile& file) { return from_folder(file, Experts::kRefused); }

Result<ModelConfig> granitemoe_from_gguf(const ModelFile& file) {
  ASSIGN_OR_RETURN(ModelConfig config, from_gguf(file, Experts::kRead));
  TRY(experts_from_gguf(file, kRouter, config));
  return config;
}

Result<ModelConfig> granitemoe_from_folder(const ModelFile& file) {
  ASSIGN_OR_RETURN(ModelConfig config, from_folder(file, Experts::kRead));
  TRY(experts_from_folder(file, "", {.router = kRouter, .reads_norm = false}, config));
  return config;
}

}  // namespace ibid::arch
