// seed-oss: llama with biases of q, k and v, and heads that are together wider than the model.
#include "model/arch/architecture.h"
#include "model/arch/common.h"

namespace ibid::arch {

Result<ModelConfig> seed_oss_from_gguf(const ModelFile& file) {
  return common_from_gguf(file, Shape::kLlama, /*interleaved=*/false);
}

Result<ModelConfig> seed_oss_from_folder(const ModelFile& file) {
  ASSIGN_OR_RETURN(ModelConfig config,
                   common_from_folder(file, Shape::kLlama, "", {.n_kv_heads = 8, .head_len = 128, .norm_eps = 1e-6}));
  TRY(must_be(file, "hidden_act", "silu"));
  TRY(flag_must_be(file, "attention_out_bias", false));
  TRY(flag_must_be(file, "mlp_bias", false));
  ASSIGN_OR_RETURN(config.qkv_bias, file.meta_bool("attention_bias", true));
  ASSIGN_OR_RETURN(RopeConfig rope, rope_from_folder(file, config, "", "rope_parameters", 10000.0));
  config.ropes.push_back(std::move(rope));
  return config;
}

}  // namespace ibid::arch
