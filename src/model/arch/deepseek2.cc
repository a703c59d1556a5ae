// Latent attention with experts: deepseek-v2, -v3, -r1 and -v3.1, kimi-k2, glm-4.7-flash (glm4_moe_lite) and mistral
// large 3, all of which GGUF calls deepseek2; and mistral small 4. The two of mistral scale queries by their position.
//
// A folder's key and value projections of a head lie in one tensor (kv_b_proj), as in GGUF files of before April 2025;
// since then GGUF has them apart, and its key and value lengths are those of the cached row.
#include <algorithm>
#include <cmath>

#include "kernels/math.h"
#include "model/arch/architecture.h"
#include "model/arch/common.h"

namespace ibid::arch {
namespace {

// Of both containers.
struct LatentSizes {
  int64_t rank = 0;   // R
  int64_t plain = 0;  // values of a head's query that do not turn
  int64_t turn = 0;   // and those that do
  int64_t out = 0;    // V
};

double yarn_mscale(double factor, double by) { return factor <= 1 ? 1.0 : 0.1 * by * math::log(factor) + 1.0; }

// Of all layers, whose RoPE is the first. yarn's mscale_all_dim scales the scores too, once for the query and once for
// the key.
Status set_latent(const LatentSizes& sizes, ModelConfig& config) {
  for (const int64_t size : {sizes.rank, sizes.plain, sizes.turn, sizes.out}) {
    if (size >= 8 && size <= kMaxHeadLen && size % 8 == 0) continue;
    return invalid("the model's latent attention has a part of " + std::to_string(size) +
                       " values; expected multiples of 8, up to " + std::to_string(kMaxHeadLen),
                   "kv_lora_rank");
  }
  RopeConfig& rope = config.ropes.front();
  rope.n_pairs = static_cast<int>(sizes.turn / 2);
  const double all = rope.scaling == RopeScaling::kYarn ? yarn_mscale(rope.factor, rope.mscale_all) : 1.0;
  const double scale = all * all / std::sqrt(static_cast<double>(sizes.plain + sizes.turn));
  for (LayerConfig& layer : config.layers) {
    layer.mixer = Mixer::kLatent;
    layer.n_kv_heads = 1;
    layer.key_len = sizes.rank + sizes.turn;
    layer.value_len = sizes.rank;
    layer.plain_len = sizes.plain;
    layer.out_len = sizes.out;
    layer.attention_scale = static_cast<float>(scale);
  }
  return {};
}

constexpr Router kBySoftmax = {.group_by_highest = true};
constexpr Router kOfMistral = {.normalises = true, .sum_epsilon = 1e-20f};
constexpr Router kBySigmoid = {.score = RouterScore::kSigmoid, .normalises = true, .sum_epsilon = 1e-20f};

// Of a text model alone, or beside a vision tower, which stays unread (kimi-k2.5, mistral small 4).
std::string prefix_of(const ModelFile& file) { return file.has_meta("text_config.kv_lora_rank") ? "text_config." : ""; }

Result<ModelConfig> from_folder(const ModelFile& file, const FolderExperts& experts) {
  // A head's length is none of those that it has.
  const std::string prefix = prefix_of(file);
  ASSIGN_OR_RETURN(
      ModelConfig config,
      common_from_folder(file, Shape::kLlama, prefix, {.head_len = 64, .norm_eps = 1e-6, .experts = Experts::kRead}));
  TRY(must_be(file, prefix + "hidden_act", "silu"));
  TRY(flag_must_be(file, prefix + "attention_bias", false));
  TRY(flag_must_be(file, prefix + "mlp_bias", false));
  TRY(flag_must_be(file, prefix + "rope_interleave", true));
  LatentSizes sizes;
  ASSIGN_OR_RETURN(sizes.rank, file.meta_int(prefix + "kv_lora_rank"));
  ASSIGN_OR_RETURN(sizes.plain, file.meta_int(prefix + "qk_nope_head_dim"));
  ASSIGN_OR_RETURN(sizes.turn, file.meta_int(prefix + "qk_rope_head_dim"));
  ASSIGN_OR_RETURN(sizes.out, file.meta_int(prefix + "v_head_dim"));
  ASSIGN_OR_RETURN(config.q_rank, file.meta_int(prefix + "q_lora_rank", 0));  // null: none
  for (LayerConfig& layer : config.layers) layer.mixer = Mixer::kLatent;
  ASSIGN_OR_RETURN(RopeConfig rope, rope_from_folder(file, config, prefix, prefix + "rope_parameters", 10000.0));
  rope.interleaved = true;
  config.ropes.push_back(std::move(rope));
  TRY(set_latent(sizes, config));
  TRY(experts_from_folder(file, prefix, experts, config));
  return config;
}

}  // namespace

Result<ModelConfig> deepseek_v3_from_folder(const ModelFile& file) {
  const std::string prefix = prefix_of(file);
  TRY(must_be(file, prefix + "scoring_func", "sigmoid"));
  TRY(must_be(file, prefix + "topk_method", "noaux_tc"));
  return from_folder(file, {.router = kBySigmoid, .has_bias = true, .shared_count = "n_shared_experts"});
}

Result<ModelConfig> mistral4_from_folder(const ModelFile& file) {
  ASSIGN_OR_RETURN(ModelConfig config, from_folder(file, {.router = kOfMistral, .shared_count = "n_shared_experts"}));
  const std::string key = prefix_of(file) + "rope_parameters.llama_4_scaling_beta";
  ASSIGN_OR_RETURN(const double scale, file.meta_float(key, 0.0));
  config.query_scale = static_cast<float>(scale);
  config.query_scale_len = config.ropes.front().original_context;
  return config;
}

Result<ModelConfig> deepseek_v2_from_folder(const ModelFile& file) {
  TRY(must_be(file, "scoring_func", "softmax"));
  // As the original computes it: with the scale or normalised, never both.
  TRY(flag_must_be(file, "norm_topk_prob", false));
  ASSIGN_OR_RETURN(const std::string method, file.meta_string("topk_method", "greedy"));
  if (method != "greedy" && method != "group_limited_greedy") {
    return unsupported("the model chooses experts by " + in_quotes(method) +
                           "; ibid runs greedy and group_limited_greedy for deepseek_v2",
                       "topk_method");
  }
  ASSIGN_OR_RETURN(ModelConfig config,
                   from_folder(file, {.router = kBySoftmax, .reads_norm = false, .shared_count = "n_shared_experts"}));
  if (method == "greedy") config.router.n_groups = config.router.groups_used = 1;
  return config;
}

Result<ModelConfig> deepseek2_from_gguf(const ModelFile& file) {
  ASSIGN_OR_RETURN(ModelConfig config,
                   common_from_gguf(file, Shape::kLlama, /*interleaved=*/true, Experts::kRead, Mixer::kLatent));
  const std::string arch = config.architecture + ".", keys = arch + "attention.";
  const bool is_mistral4 = config.architecture == "mistral4";
  LatentSizes sizes;
  sizes.turn = 2 * config.ropes.front().n_pairs;
  ASSIGN_OR_RETURN(sizes.rank, file.meta_int(keys + "kv_lora_rank"));
  // Apart, key_length and value_length are the row's and these the heads'; in one, those are the heads'.
  ASSIGN_OR_RETURN(const int64_t key_len, file.meta_int(keys + "key_length"));
  ASSIGN_OR_RETURN(const int64_t value_len, file.meta_int(keys + "value_length"));
  ASSIGN_OR_RETURN(const int64_t head_len, file.meta_int(keys + "key_length_mla", key_len));
  ASSIGN_OR_RETURN(sizes.out, file.meta_int(keys + "value_length_mla", value_len));
  sizes.plain = std::clamp<int64_t>(head_len, 0, int64_t{1} << 20) - sizes.turn;
  ASSIGN_OR_RETURN(config.q_rank, file.meta_int(keys + "q_lora_rank", 0));
  TRY(set_latent(sizes, config));
  // Files of mistral small 4 lack both keys, as its converter writes them.
  const int64_t original = config.ropes.front().original_context;
  const double of_architecture = is_mistral4 && original > 0 ? 0.1 : 0.0;
  ASSIGN_OR_RETURN(const double scale, file.meta_float(keys + "temperature_scale", of_architecture));
  ASSIGN_OR_RETURN(config.query_scale_len, file.meta_int(keys + "temperature_length", original));
  config.query_scale = static_cast<float>(scale);
  if (!file.has_meta(arch + "expert_count")) return config;
  // Where the key of the score is absent, as in files of GLM-4.7-Flash: only routers by sigmoid have a bias.
  const std::string last = "blk." + std::to_string(config.n_layers - 1) + ".exp_probs_b.bias";
  const int64_t otherwise = file.find(last) != nullptr ? 2 : 1;
  ASSIGN_OR_RETURN(const int64_t score, file.meta_int(arch + "expert_gating_func", otherwise));
  TRY(experts_from_gguf(file, is_mistral4 ? kOfMistral : score == 2 ? kBySigmoid : kBySoftmax, config));
  return config;
}

}  // namespace ibid::arch
