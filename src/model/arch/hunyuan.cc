// hunyuan, dense and with experts: norms of heads after their rotation, and a RoPE base that depends on a fixed number.
#include <algorithm>

#include "kernels/math.h"
#include "model/arch/architecture.h"
#include "model/arch/common.h"

namespace ibid::arch {
namespace {

constexpr Router kRouter = {.normalises = true};

void set_norms(ModelConfig& config) { config.qk_norm = config.qk_norm_after_rope = true; }

// Its "dynamic" scaling has an alpha and does not depend on a text's length: base alpha^(D / (D - 2)).
Result<RopeConfig> rope_of(const ModelFile& file, const ModelConfig& config) {
  for (const std::string object : {"rope_parameters.", "rope_scaling."}) {
    ASSIGN_OR_RETURN(const std::string type, file.meta_string(object + "type", ""));
    ASSIGN_OR_RETURN(const std::string kind, file.meta_string(object + "rope_type", type));
    if (kind != "dynamic" || !file.has_meta(object + "alpha")) continue;
    ASSIGN_OR_RETURN(const double alpha, file.meta_float(object + "alpha"));
    ASSIGN_OR_RETURN(const double outer, file.meta_float("rope_theta", 10000.0));
    ASSIGN_OR_RETURN(const double base, file.meta_float(object + "rope_theta", outer));
    const auto D = static_cast<double>(config.layers.front().key_len);
    if (!(alpha > 0 && alpha <= 1e6 && base > 1 && D > 2)) {
      return invalid("the model's RoPE has a base of " + std::to_string(base) + " and an alpha of " +
                         std::to_string(alpha) + "; expected more than 1, and 0 to 1000000",
                     object + "alpha");
    }
    RopeConfig rope;
    rope.n_pairs = static_cast<int>(config.layers.front().key_len / 2);
    rope.base = base * math::pow(alpha, D / (D - 2));
    return rope;
  }
  return rope_from_folder(file, config, "", "rope_parameters", 10000.0);
}

}  // namespace

Result<ModelConfig> hunyuan_dense_from_gguf(const ModelFile& file) {
  ASSIGN_OR_RETURN(ModelConfig config, common_from_gguf(file, Shape::kLlama, /*interleaved=*/false));
  set_norms(config);
  return config;
}

Result<ModelConfig> hunyuan_dense_from_folder(const ModelFile& file) {
  ASSIGN_OR_RETURN(ModelConfig config, common_from_folder(file, Shape::kLlama, "", {.experts = Experts::kRead}));
  TRY(must_be(file, "hidden_act", "silu"));
  TRY(flag_must_be(file, "attention_bias", false));
  TRY(flag_must_be(file, "mlp_bias", false));
  TRY(flag_must_be(file, "use_qk_norm", true));
  TRY(flag_must_be(file, "use_cla", false));
  ASSIGN_OR_RETURN(const int64_t n_experts, file.meta_int("num_experts", 1));
  if (n_experts != 1)
    return unsupported("a dense hunyuan with " + std::to_string(n_experts) + " experts", "num_experts");
  set_norms(config);
  ASSIGN_OR_RETURN(RopeConfig rope, rope_of(file, config));
  config.ropes.push_back(std::move(rope));
  return config;
}

Result<ModelConfig> hunyuan_moe_from_gguf(const ModelFile& file) {
  ASSIGN_OR_RETURN(ModelConfig config, common_from_gguf(file, Shape::kLlama, /*interleaved=*/false, Experts::kRead));
  set_norms(config);
  TRY(experts_from_gguf(file, kRouter, config));
  return config;
}

Result<ModelConfig> hunyuan_moe_from_folder(const ModelFile& file) {
  ASSIGN_OR_RETURN(ModelConfig config, common_from_folder(file, Shape::kLlama, "", {.experts = Experts::kRead}));
  TRY(must_be(file, "hidden_act", "silu"));
  TRY(flag_must_be(file, "attention_bias", false));
  TRY(flag_must_be(file, "mlp_bias", false));
  TRY(flag_must_be(file, "use_qk_norm", true));
  TRY(flag_must_be(file, "use_cla", false));
  set_norms(config);
  ASSIGN_OR_RETURN(RopeConfig rope, rope_of(file, config));
  config.ropes.push_back(std::move(rope));
  if (file.has_meta("num_shared_expert")) {
    ASSIGN_OR_RETURN(const std::vector<int64_t> n, file.meta_ints("num_shared_expert"));
    if (std::ranges::any_of(n, [](int64_t i) { return i != 1; }))
      return unsupported("the model has other than one shared expert in a layer", "num_shared_expert");
  }
  TRY(experts_from_folder(file, "", {.router = kRouter, .reads_norm = false, .shared_len = "intermediate_size"},
                          config));
  const LayerConfig* layer = config.first_with_experts();
  if (layer != nullptr && layer->expert_len != layer->ffn_len) {
    return unsupported("the model's experts are " + std::to_string(layer->expert_len) + " wide and its shared one " +
                           std::to_string(layer->ffn_len) + "; ibid runs this architecture with the same width",
                       "moe_intermediate_size");
  }
  return config;
}

}  // namespace ibid::arch
