// Models whose routers score by sigmoids and choose with a bias: glm-4.5 to 4.7, dots.llm1, minimax-m2, hunyuan 3 and
// ling 2.
#include <string>

#include "model/arch/architecture.h"
#include "model/arch/common.h"

namespace ibid::arch {
namespace {

constexpr Router kRouter = {.score = RouterScore::kSigmoid, .normalises = true, .sum_epsilon = 1e-20f};

Result<ModelConfig> from_gguf(const ModelFile& file) {
  ASSIGN_OR_RETURN(ModelConfig config, common_from_gguf(file, Shape::kLlama, /*interleaved=*/false, Experts::kRead));
  config.qk_norm = file.find("blk.0.attn_q_norm.weight") != nullptr;
  TRY(experts_from_gguf(file, kRouter, config));
  return config;
}

Result<ModelConfig> from_folder(const ModelFile& file, const FolderDefaults& defaults, double rope_base) {
  FolderDefaults of = defaults;
  of.experts = Experts::kRead;
  ASSIGN_OR_RETURN(ModelConfig config, common_from_folder(file, Shape::kLlama, "", of));
  TRY(must_be(file, "hidden_act", "silu"));
  TRY(must_be(file, "scoring_func", "sigmoid"));
  ASSIGN_OR_RETURN(RopeConfig rope, rope_from_folder(file, config, "", "rope_parameters", rope_base));
  config.ropes.push_back(std::move(rope));
  return config;
}

}  // namespace

// Files have q, k and v in one tensor, and norms of their heads.
Result<ModelConfig> bailing2_from_gguf(const ModelFile& file) { return from_gguf(file); }

Result<ModelConfig> glm4moe_from_gguf(const ModelFile& file) { return from_gguf(file); }

Result<ModelConfig> glm4moe_from_folder(const ModelFile& file) {
  ASSIGN_OR_RETURN(ModelConfig config, from_folder(file, {.head_len = 128}, 10000.0));
  ASSIGN_OR_RETURN(config.qkv_bias, file.meta_bool("attention_bias", false));
  ASSIGN_OR_RETURN(config.qk_norm, file.meta_bool("use_qk_norm", false));
  TRY(experts_from_folder(file, "", {.router = kRouter, .has_bias = true, .shared_count = "n_shared_experts"}, config));
  return config;
}

Result<ModelConfig> dots1_from_gguf(const ModelFile& file) { return from_gguf(file); }

Result<ModelConfig> dots1_from_folder(const ModelFile& file) {
  TRY(flag_must_be(file, "attention_bias", false));
  ASSIGN_OR_RETURN(ModelConfig config, from_folder(file, {}, 10000.0));
  ASSIGN_OR_RETURN(const int64_t window, read_window(file, "sliding_window"));
  TRY(windows_from_layer_types(file, "", window, config));
  config.qk_norm = true;
  TRY(experts_from_folder(file, "", {.router = kRouter, .has_bias = true, .shared_count = "n_shared_experts"}, config));
  return config;
}

Result<ModelConfig> minimax_m2_from_gguf(const ModelFile& file) {
  ASSIGN_OR_RETURN(ModelConfig config, from_gguf(file));
  config.qk_norm = config.qk_norm_whole = true;
  config.router.sum_epsilon = 0;
  return config;
}

Result<ModelConfig> minimax_m2_from_folder(const ModelFile& file) {
  ASSIGN_OR_RETURN(ModelConfig config, from_folder(file, {.head_len = 128}, 5e6));
  if (file.has_meta("rotary_dim")) {
    ASSIGN_OR_RETURN(const int64_t n, file.meta_int("rotary_dim"));
    const int64_t len = config.layers.front().key_len;
    if (n < 2 || n > len || n % 2 != 0) {
      return invalid("the model turns " + std::to_string(n) + " values of its heads of " + std::to_string(len) +
                         "; expected an even number up to that",
                     "rotary_dim");
    }
    config.ropes.front().n_pairs = static_cast<int>(n / 2);
  }
  config.qk_norm = config.qk_norm_whole = true;
  Router router = kRouter;
  router.sum_epsilon = 0;
  TRY(experts_from_folder(file, "", {.router = router, .reads_norm = false, .has_bias = true}, config));
  return config;
}

Result<ModelConfig> hy_v3_from_gguf(const ModelFile& file) { return from_gguf(file); }

Result<ModelConfig> hy_v3_from_folder(const ModelFile& file) {
  TRY(flag_must_be(file, "attention_bias", false));
  TRY(flag_must_be(file, "mlp_bias", false));
  ASSIGN_OR_RETURN(ModelConfig config, from_folder(file, {}, 11158840.0));
  config.qk_norm = true;
  Router router = kRouter;
  ASSIGN_OR_RETURN(router.normalises, file.meta_bool("route_norm", true));
  TRY(experts_from_folder(
      file, "", {.router = router, .reads_norm = false, .has_bias = true, .shared_count = "num_shared_experts"},
      config));
  return config;
}

}  // namespace ibid::arch
