// gemma 4: layers with a window and layers without, which have heads of their own length and number; the last ones read
// the keys and values of the last one of their kind before them.
#include <algorithm>
#include <array>
#include <cmath>

#include "model/arch/architecture.h"
#include "model/arch/common.h"

namespace ibid {
namespace {

constexpr std::array<WeightName, 31> kNames = {{
    {"token_embd.weight", "embed_tokens.weight"},
    {"output_norm.weight", "norm.weight"},
    {"output.weight", "lm_head.weight"},
    {"per_layer_token_embd.weight", "embed_tokens_per_layer.weight"},
    {"per_layer_model_proj.weight", "per_layer_model_projection.weight"},
    {"per_layer_proj_norm.weight", "per_layer_projection_norm.weight"},
    {"blk.{}.attn_norm.weight", "layers.{}.input_layernorm.weight"},
    {"blk.{}.attn_q.weight", "layers.{}.self_attn.q_proj.weight"},
    {"blk.{}.attn_k.weight", "layers.{}.self_attn.k_proj.weight"},
    {"blk.{}.attn_v.weight", "layers.{}.self_attn.v_proj.weight"},
    {"blk.{}.attn_q_norm.weight", "layers.{}.self_attn.q_norm.weight"},
    {"blk.{}.attn_k_norm.weight", "layers.{}.self_attn.k_norm.weight"},
    {"blk.{}.attn_output.weight", "layers.{}.self_attn.o_proj.weight"},
    {"blk.{}.post_attention_norm.weight", "layers.{}.post_attention_layernorm.weight"},
    {"blk.{}.ffn_norm.weight", "layers.{}.pre_feedforward_layernorm.weight"},
    {"blk.{}.ffn_gate.weight", "layers.{}.mlp.gate_proj.weight"},
    {"blk.{}.ffn_up.weight", "layers.{}.mlp.up_proj.weight"},
    {"blk.{}.ffn_down.weight", "layers.{}.mlp.down_proj.weight"},
    {"blk.{}.post_ffw_norm.weight", "layers.{}.post_feedforward_layernorm.weight"},
    {"blk.{}.ffn_gate_inp.weight", "layers.{}.router.proj.weight"},
    {"blk.{}.ffn_gate_inp.scale", "layers.{}.router.scale"},
    {"blk.{}.ffn_down_exps.scale", "layers.{}.router.per_expert_scale"},
    {"blk.{}.ffn_gate_up_exps.weight", "layers.{}.experts.gate_up_proj"},
    {"blk.{}.ffn_down_exps.weight", "layers.{}.experts.down_proj"},
    {"blk.{}.post_ffw_norm_1.weight", "layers.{}.post_feedforward_layernorm_1.weight"},
    {"blk.{}.pre_ffw_norm_2.weight", "layers.{}.pre_feedforward_layernorm_2.weight"},
    {"blk.{}.post_ffw_norm_2.weight", "layers.{}.post_feedforward_layernorm_2.weight"},
    {"blk.{}.inp_gate.weight", "layers.{}.per_layer_input_gate.weight"},
    {"blk.{}.proj.weight", "layers.{}.per_layer_projection.weight"},
    {"blk.{}.post_norm.weight", "layers.{}.post_per_layer_input_norm.weight"},
    {"blk.{}.layer_output_scale.weight", "layers.{}.layer_scalar"},
}};

constexpr int64_t kPeriod = 6;          // every sixth layer sees everything
constexpr int kGlobal = 0, kLocal = 1;  // indices of ropes
constexpr double kGlobalBase = 1e6;     // where a file gives none
constexpr double kStill = 1e20;         // a frequency's divisor in a GGUF file where its pair does not turn

// The last `n_shared` layers read what the last one of their kind before them keeps.
Status share_caches(int64_t n_shared, const std::string& key, ModelConfig& config) {
  if (n_shared < 0 || n_shared >= config.n_layers) {
    return invalid("the last " + std::to_string(n_shared) + " of the model's " + std::to_string(config.n_layers) +
                       " layers share keys and values; expected fewer, and not less than none",
                   key);
  }
  const auto first = static_cast<size_t>(config.n_layers - n_shared);
  for (size_t l = first; l < config.layers.size(); ++l) {
    LayerConfig& layer = config.layers[l];
    layer.value_is_key = false;
    for (size_t o = 0; o < first; ++o) {
      if ((config.layers[o].window == 0) == (layer.window == 0)) layer.kv_owner = static_cast<int32_t>(o);
    }
    if (layer.kv_owner == kOwnCache) {
      return invalid("layer " + std::to_string(l) + " shares keys and values, but no layer before number " +
                         std::to_string(first) + " is of its kind",
                     key);
    }
  }
  return {};
}

// Layers without a window read a picture as they read text.
void see_whole_pictures(ModelConfig& config) {
  for (LayerConfig& layer : config.layers) layer.sees_whole_pictures = layer.window != 0;
}

void finish(ModelConfig& config) {
  config.qk_norm = config.value_norm = true;
  config.activation = FfnActivation::kGeluTanh;
  config.router.normalises = true;
  config.embedding_scale = std::sqrt(static_cast<float>(config.width));
  for (LayerConfig& layer : config.layers) {
    layer.attention_scale = 1.0f;
    layer.rope = layer.window != 0 ? kLocal : kGlobal;
  }
}

Status set_layer_embedding(int64_t len, const std::string& key, ModelConfig& config) {
  if (len < 0 || len > 65536) {
    return invalid("the model's embedding of each layer is " + std::to_string(len) + " wide; expected 0 to 65536", key);
  }
  config.layer_embedding_len = len;
  config.layer_embeddings_len = len * config.n_layers;
  return {};
}

// The rope_freqs.weight of a file: 1 for pairs that turn, and a very large number for the rest of a head.
Status read_turning_pairs(RopeConfig& rope) {
  const auto still = std::ranges::find_if(rope.divisors, [](double d) { return d != 1.0; });
  rope.n_turning = static_cast<int>(still - rope.divisors.begin());
  const bool fits = static_cast<int>(rope.divisors.size()) == rope.n_pairs && rope.n_turning > 0 &&
                    std::all_of(still, rope.divisors.end(), [](double d) { return d > kStill; });
  if (!fits) {
    return invalid(
        "the model's \"rope_freqs.weight\" is not ones and then numbers above 1e20, one for each pair of a head",
        "rope_freqs.weight");
  }
  rope.divisors.clear();
  return {};
}

}  // namespace

constinit const std::span<const WeightName> kGemma4Names = kNames;

namespace arch {
namespace {

Status experts_of_gguf(const ModelFile& file, ModelConfig& config) {
  ASSIGN_OR_RETURN(const int64_t n, file.meta_int("gemma4.expert_count", 0));
  if (n == 0) return {};
  ASSIGN_OR_RETURN(const int64_t used, file.meta_int("gemma4.expert_used_count"));
  ASSIGN_OR_RETURN(const int64_t len, file.meta_int("gemma4.expert_feed_forward_length"));
  for (size_t l = 0; l < config.layers.size(); ++l) {
    if (file.find("blk." + std::to_string(l) + ".ffn_gate_inp.weight") == nullptr) continue;
    config.layers[l].n_experts = n;
    config.layers[l].n_experts_used = used;
    config.layers[l].expert_len = len;
  }
  return {};
}

// A number of one layer: an entry of per_layer_config, whose keys some writers pad with zeros, or `otherwise`.
Result<int64_t> of_layer(const ModelFile& file, const std::string& prefix, size_t l, std::string_view name,
                         int64_t otherwise) {
  for (std::string number = std::to_string(l); number.size() <= 4; number = "0" + number) {
    const std::string key = prefix + "per_layer_config." + number + "." + std::string(name);
    if (file.has_meta(key)) return file.meta_int(key);
  }
  return otherwise;
}

Status heads_of_folder(const ModelFile& file, const std::string& prefix, ModelConfig& config) {
  ASSIGN_OR_RETURN(const bool value_is_key, file.meta_bool(prefix + "attention_k_eq_v", false));
  ASSIGN_OR_RETURN(const int64_t global_len, file.meta_int(prefix + "global_head_dim", 512));
  const int64_t n_local = config.layers.front().n_kv_heads;
  ASSIGN_OR_RETURN(const int64_t n_global, file.meta_int(prefix + "num_global_key_value_heads", n_local));
  for (size_t l = 0; l < config.layers.size(); ++l) {
    LayerConfig& layer = config.layers[l];
    const bool is_global = layer.window == 0;
    ASSIGN_OR_RETURN(const int64_t len, of_layer(file, prefix, l, "head_dim", is_global ? global_len : layer.key_len));
    ASSIGN_OR_RETURN(layer.n_kv_heads, of_layer(file, prefix, l, "num_key_value_heads",
                                                is_global && value_is_key ? n_global : layer.n_kv_heads));
    layer.set_head_len(len);
    layer.value_is_key = is_global && value_is_key;
  }
  return {};
}

Status ropes_of_folder(const ModelFile& file, const std::string& prefix, ModelConfig& config) {
  const std::string full = prefix + "rope_parameters.full_attention.",
                    sliding = prefix + "rope_parameters.sliding_attention.";
  RopeConfig ropes[2];
  for (const LayerConfig& layer : config.layers) {
    const int64_t len = std::clamp<int64_t>(layer.key_len, 0, 1 << 20);  // an absurd one is refused by validate()
    ropes[layer.window != 0 ? kLocal : kGlobal].n_pairs = static_cast<int>(len / 2);
  }
  for (RopeConfig& rope : ropes) rope.n_pairs = std::max(rope.n_pairs, 1);  // of a kind that no layer is
  ASSIGN_OR_RETURN(ropes[kGlobal].base, file.meta_float(full + "rope_theta", kGlobalBase));
  ASSIGN_OR_RETURN(ropes[kLocal].base, file.meta_float(sliding + "rope_theta", 10000.0));
  TRY(must_be(file, sliding + "rope_type", "default"));
  TRY(must_be(file, full + "rope_type", "proportional"));
  ASSIGN_OR_RETURN(const double part, file.meta_float(full + "partial_rotary_factor", 0.25));
  if (!(part > 0 && part <= 1)) {
    return invalid("partial_rotary_factor is not between 0 and 1", full + "partial_rotary_factor");
  }
  ropes[kGlobal].n_turning = static_cast<int>(part * 2 * ropes[kGlobal].n_pairs / 2);
  config.ropes.assign(std::begin(ropes), std::end(ropes));
  return {};
}

Status experts_of_folder(const ModelFile& file, const std::string& prefix, ModelConfig& config) {
  ASSIGN_OR_RETURN(const bool has_experts, file.meta_bool(prefix + "enable_moe_block", false));
  if (!has_experts) return {};
  for (LayerConfig& layer : config.layers) {
    ASSIGN_OR_RETURN(layer.n_experts, file.meta_int(prefix + "num_experts"));
    ASSIGN_OR_RETURN(layer.n_experts_used, file.meta_int(prefix + "top_k_experts"));
    ASSIGN_OR_RETURN(layer.expert_len, file.meta_int(prefix + "moe_intermediate_size"));
    if (layer.n_experts < 1)
      return invalid("the model states that it has experts, and not one", prefix + "num_experts");
  }
  return {};
}

}  // namespace

Result<ModelConfig> gemma4_from_gguf(const ModelFile& file) {
  ASSIGN_OR_RETURN(ModelConfig config, common_from_gguf(file, Shape::kGemma4, /*interleaved=*/false, Experts::kRead));
  if (config.ropes[kGlobal].divisors.empty()) {
    return invalid("the model lacks \"rope_freqs.weight\", which states how much of its heads turns",
                   "rope_freqs.weight");
  }
  TRY(read_turning_pairs(config.ropes[kGlobal]));
  if (!file.has_meta("gemma4.rope.freq_base")) config.ropes[kGlobal].base = kGlobalBase;
  TRY(windows_from_gguf(file, kPeriod, config));
  const int64_t global_len = config.layers.front().key_len;
  ASSIGN_OR_RETURN(const int64_t local_len, file.meta_int("gemma4.attention.key_length_swa", global_len));
  ASSIGN_OR_RETURN(const int64_t value_len, file.meta_int("gemma4.attention.value_length_swa", local_len));
  ASSIGN_OR_RETURN(const int64_t n_rotated, file.meta_int("gemma4.rope.dimension_count_swa", local_len));
  RopeConfig local;
  local.n_pairs = static_cast<int>(std::clamp<int64_t>(n_rotated / 2, 0, 1 << 20));
  ASSIGN_OR_RETURN(local.base, file.meta_float("gemma4.rope.freq_base_swa", 10000.0));
  config.ropes.push_back(std::move(local));
  for (size_t l = 0; l < config.layers.size(); ++l) {
    LayerConfig& layer = config.layers[l];
    if (layer.window != 0) layer.key_len = local_len, layer.value_len = value_len;
    const std::string block = "blk." + std::to_string(l) + ".";
    layer.value_is_key =
        file.find(block + "attn_v.weight") == nullptr && file.find(block + "attn_qkv.weight") == nullptr;
  }
  ASSIGN_OR_RETURN(const int64_t n_shared, file.meta_int("gemma4.attention.shared_kv_layers", 0));
  TRY(share_caches(n_shared, "gemma4.attention.shared_kv_layers", config));
  const std::string embedding = "gemma4.embedding_length_per_layer_input";
  ASSIGN_OR_RETURN(const int64_t embedding_len, file.meta_int(embedding, 0));
  TRY(set_layer_embedding(embedding_len, embedding, config));
  if (embedding_len == 0) see_whole_pictures(config);  // of the family, those without it do; the file has no key for it
  TRY(experts_of_gguf(file, config));
  ASSIGN_OR_RETURN(const double cap, file.meta_float("gemma4.final_logit_softcapping", 0.0));
  config.logit_soft_cap = static_cast<float>(cap);
  finish(config);
  return config;
}

Result<ModelConfig> gemma4_from_folder(const ModelFile& file) {
  const std::string prefix = file.has_meta("text_config.hidden_size") ? "text_config." : "";
  ASSIGN_OR_RETURN(ModelConfig config, common_from_folder(file, Shape::kGemma4, prefix,
                                                          {.n_heads = 8,
                                                           .n_kv_heads = 4,
                                                           .head_len = 256,
                                                           .vocab_size = 262144,
                                                           .trained_context_len = 131072,
                                                           .norm_eps = 1e-6,
                                                           .tied_embedding = true,
                                                           .experts = Experts::kRead}));
  TRY(must_be(file, prefix + "hidden_activation", "gelu_pytorch_tanh"));
  TRY(flag_must_be(file, prefix + "attention_bias", false));
  ASSIGN_OR_RETURN(const int64_t window, file.has_meta(prefix + "sliding_window")
                                             ? read_window(file, prefix + "sliding_window")
                                             : Result<int64_t>(512));
  TRY(windows_by_period(kPeriod, window, config));
  TRY(windows_from_layer_types(file, prefix, window, config));
  config.layers.back().window = 0;
  if (file.has_meta(prefix + "use_bidirectional_attention")) {
    TRY(must_be(file, prefix + "use_bidirectional_attention", "vision"));
    see_whole_pictures(config);
  }
  TRY(heads_of_folder(file, prefix, config));
  TRY(ropes_of_folder(file, prefix, config));
  ASSIGN_OR_RETURN(const int64_t n_shared, file.meta_int(prefix + "num_kv_shared_layers", 0));
  TRY(share_caches(n_shared, prefix + "num_kv_shared_layers", config));
  ASSIGN_OR_RETURN(const bool is_double, file.meta_bool(prefix + "use_double_wide_mlp", false));
  for (LayerConfig& layer : config.layers) {
    if (is_double && layer.kv_owner != kOwnCache) layer.ffn_len = std::clamp<int64_t>(layer.ffn_len, 0, 1 << 20) * 2;
  }
  TRY(experts_of_folder(file, prefix, config));
  const std::string embedding = prefix + "hidden_size_per_layer_input";
  ASSIGN_OR_RETURN(const int64_t embedding_len, file.meta_int(embedding, 0));
  TRY(set_layer_embedding(embedding_len, embedding, config));
  ASSIGN_OR_RETURN(const int64_t pad, file.meta_int(prefix + "pad_token_id", 0));
  if (pad < 0 || pad >= config.vocab_size)
    return invalid("pad_token_id is " + std::to_string(pad) + ", which the vocabulary has not",
                   prefix + "pad_token_id");
  config.picture_row = TokenId{static_cast<int32_t>(pad)};
  ASSIGN_OR_RETURN(const double cap, file.meta_float(prefix + "final_logit_softcapping", 0.0));
  config.logit_soft_cap = static_cast<float>(cap);
  finish(config);
  return config;
}

}  // namespace arch
}  // namespace ibid
