// olmoe: experts, and one norm over all heads of q, and of k.
#include "model/arch/architecture.h"
#include "model/arch/common.h"

namespace ibid::arch {

Result<ModelConfig> olmoe_from_gguf(const ModelFile& file) {
  ASSIGN_OR_RETURN(ModelConfig config, common_from_gguf(file, Shape::kLlama, /*interleaved=*/false, Experts::kRead));
  config.qk_norm = config.qk_norm_whole = true;
  if (file.has_meta("olmoe.attention.clamp_kqv"))
    return unsupported("the model clamps queries, keys and values, which ibid does not run",
                       "olmoe.attention.clamp_kqv");
  TRY(experts_from_gguf(file, {}, config));
  return config;
}

Result<ModelConfig> olmoe_from_folder(const ModelFile& file) {
  ASSIGN_OR_RETURN(ModelConfig config,
                   common_from_folder(file, Shape::kLlama, "", {.norm_eps = 1e-5, .experts = Experts::kRead}));
  TRY(must_be(file, "hidden_act", "silu"));
  TRY(flag_must_be(file, "attention_bias", false));
  if (file.has_meta("clip_qkv"))
    return unsupported("the model clamps queries, keys and values, which ibid does not run", "clip_qkv");
  config.qk_norm = config.qk_norm_whole = true;
  ASSIGN_OR_RETURN(RopeConfig rope, rope_from_folder(file, config, "", "rope_parameters", 10000.0));
  config.ropes.push_back(std::move(rope));
  TRY(experts_from_folder(file, "", {}, config));
  return config;
}

}  // namespace ibid::arch
