#include "model/gguf_form.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "base/quoted.h"
#include "format/quantised_matrix.h"
#include "kernels/math.h"
#include "model/arch/architecture.h"
#include "model/rope.h"
#include "model/weights.h"
#include "tensor/block_formats.h"
#include "tensor/dequantise.h"

namespace ibid {
namespace {

// GGUF's architecture and whether it keeps rotated pairs side by side.
std::string gguf_architecture(const ModelConfig& c) {
  const std::string& name = c.architecture;
  constexpr std::pair<std::string_view, std::string_view> kCalled[] = {{"mistral", "llama"},
                                                                       {"gemma3_text", "gemma3"},
                                                                       {"gemma4_text", "gemma4"},
                                                                       {"mixtral", "llama"},
                                                                       {"qwen2_moe", "qwen2moe"},
                                                                       {"qwen3_moe", "qwen3moe"},
                                                                       {"qwen3_vl", "qwen3vl"},
                                                                       {"qwen3_vl_text", "qwen3vl"},

                                                                       {"glm4_moe", "glm4moe"},
                                                                       {"minimax_m2", "minimax-m2"},
                                                                       {"hunyuan_v1_moe", "hunyuan-moe"},
                                                                       {"ernie4_5_moe", "ernie4_5-moe"},
                                                                       {"lfm2_moe", "lfm2moe"},
                                                                       {"granitemoehybrid", "granitehybrid"},
                                                                       {"falcon_h1", "falcon-h1"},
                                                                       {"muse_glimmer", "muse-glimmer"},
                                                                       {"muse_glimmer_text", "muse-glimmer"},
                                                                       {"lfm2_vl", "lfm2"},
                                                                       {"qwen3_next", "qwen3next"},
                                                                       {"qwen3_5_text", "qwen35"},
                                                                       {"qwen3_5", "qwen35"},
                                                                       {"qwen3_5_moe_text", "qwen35moe"},
                                                                       {"qwen3_5_moe", "qwen35moe"},
                                                                       {"ministral3", "mistral3"},
                                                                       {"hunyuan_v1_dense", "hunyuan-dense"},
                                                                       {"olmo3", "olmo2"},
                                                                       {"gpt_oss", "gpt-oss"},
                                                                       {"deepseek_v2", "deepseek2"},
                                                                       {"deepseek_v3", "deepseek2"},
                                                                       {"glm4_moe_lite", "deepseek2"}};
  for (const auto& [of_folder, of_gguf] : kCalled) {
    if (name == of_folder) return std::string(of_gguf);
  }
  if (name == "nemotron_h" && c.first_with_experts() != nullptr) return "nemotron_h_moe";
  return name;
}
bool interleaves(const std::string& gguf_name) {
  return gguf_name == "llama" || gguf_name == "smollm3" || gguf_name.starts_with("granite") ||
         gguf_name == "mistral3" || gguf_name == "muse-glimmer";
}

void put_rope(const ModelConfig& c, const std::string& arch, Metadata& m) {
  if (c.ropes.empty()) return;
  const RopeConfig& rope = c.ropes[0];
  const std::string scaling = arch + "rope.scaling.";
  m[arch + "rope.dimension_count"] = int64_t{2 * rope.n_pairs};
  m[arch + "rope.freq_base"] = rope.base;
  if (c.ropes.size() > 1) m[arch + "rope.freq_base_swa"] = c.ropes[1].base;
  if (!rope.axes.empty()) {
    std::vector<int64_t> sections(4, 0);
    for (const uint8_t axis : rope.axes) ++sections[axis];
    m[arch + "rope.dimension_sections"] = std::move(sections);
  }
  if (rope.scaling == RopeScaling::kLinear || rope.scaling == RopeScaling::kYarn) {
    m[scaling + "type"] = std::string(rope_scaling_name(rope.scaling));
    m[scaling + "factor"] = rope.factor;
  }
  const bool is_latent = c.first_with(Mixer::kLatent) != nullptr;
  if (rope.scaling == RopeScaling::kYarn && c.query_scale != 0 && !is_latent) {  // ministral 3's magnitude is 1
    m[scaling + "yarn_log_multiplier"] = 1.0;
  } else if (rope.mscale_all != 0) {  // of latent attention, whose magnitude is 1
    m[scaling + "yarn_log_multiplier"] = 0.1 * rope.mscale_all;
  } else if (rope.scaling == RopeScaling::kYarn && rope.magnitude != 0) {
    m[scaling + "attn_factor"] = rope.magnitude / (1.0 + 0.1 * math::log(rope.factor));
  }
  if (rope.scaling == RopeScaling::kYarn || rope.scaling == RopeScaling::kLongrope) {
    m[scaling + "original_context_length"] = rope.original_context;
  }
  if (rope.scaling == RopeScaling::kLongrope) {
    m[scaling + "attn_factor"] = static_cast<double>(make_rope_table(rope, c.trained_context_len).magnitude);
  }
}

// Row r of a head's D rows: halves (i, i + n) become neighbours (2 i, 2 i + 1).
std::vector<float> interleave_rows(const std::vector<float>& rows, int64_t n_heads, int64_t head_len, int64_t columns) {
  std::vector<float> out(rows.size());
  const int64_t n = head_len / 2;
  for (int64_t h = 0; h < n_heads; ++h) {
    for (int64_t i = 0; i < head_len; ++i) {
      const int64_t to = i < n ? 2 * i : 2 * (i - n) + 1;
      std::memcpy(&out[static_cast<size_t>((h * head_len + to) * columns)],
                  &rows[static_cast<size_t>((h * head_len + i) * columns)],
                  static_cast<size_t>(columns) * sizeof(float));
    }
  }
  return out;
}

// One number where all layers are alike.
MetaValue of_layers(const ModelConfig& c, int64_t LayerConfig::*size) {
  std::vector<int64_t> values;
  for (const LayerConfig& layer : c.layers) values.push_back(layer.*size);
  for (const int64_t value : values) {
    if (value != values.front()) return values;
  }
  return values.front();
}

// Sizes of layers with a window and of those without.
void put_gemma4(const ModelConfig& c, const std::string& arch, Metadata& m) {
  int64_t n_shared = 0;
  for (const LayerConfig& layer : c.layers) {
    const std::string of = layer.window != 0 ? "_swa" : "";
    m[arch + "attention.key_length" + of] = layer.key_len;
    m[arch + "attention.value_length" + of] = layer.value_len;
    n_shared += layer.kv_owner != kOwnCache;
  }
  m[arch + "rope.dimension_count_swa"] = int64_t{2 * c.ropes[1].n_pairs};
  m[arch + "attention.shared_kv_layers"] = n_shared;
  m[arch + "embedding_length_per_layer_input"] = c.layer_embedding_len;
  const LayerConfig* experts = c.first_with_experts();
  if (experts == nullptr) return;
  m[arch + "expert_count"] = experts->n_experts;
  m[arch + "expert_used_count"] = experts->n_experts_used;
  m[arch + "expert_feed_forward_length"] = experts->expert_len;
}

// Of a model whose layers have one part: of those with experts the width of one.
std::vector<int64_t> ffn_lens_of_parts(const ModelConfig& c) {
  std::vector<int64_t> out;
  for (const LayerConfig& l : c.layers) out.push_back(l.n_experts > 0 ? l.expert_len : l.ffn_len);
  return out;
}

// As converters write them: what an architecture always does has no key.
void put_experts(const ModelConfig& c, const std::string& arch, Metadata& m) {
  const LayerConfig& of = *c.first_with_experts();
  m[arch + "feed_forward_length"] = of.expert_len;
  for (const LayerConfig& layer : c.layers) {
    if (layer.n_experts == 0) m[arch + "feed_forward_length"] = layer.ffn_len;
  }
  m[arch + "expert_count"] = of.n_experts;
  m[arch + "expert_used_count"] = of.n_experts_used;
  if (arch == "granitehybrid.") {
    m[arch + "expert_shared_feed_forward_length"] = of.ffn_len;
    return;
  }
  if (c.one_part_layers) m[arch + "feed_forward_length"] = ffn_lens_of_parts(c);
  if (c.expert_latent_len > 0) m[arch + "moe_latent_size"] = c.expert_latent_len;
  if (arch == "llama." || arch == "olmoe." || arch == "granitemoe.") return;
  m[arch + "expert_feed_forward_length"] = of.expert_len;
  if (of.ffn_len > 0) m[arch + "expert_shared_feed_forward_length"] = of.ffn_len;
  const auto n_dense = std::ranges::find_if(c.layers, [](const LayerConfig& l) { return l.n_experts > 0; });
  if (!arch.starts_with("qwen") && !c.one_part_layers)
    m[arch + "leading_dense_block_count"] = int64_t{n_dense - c.layers.begin()};
  if (arch.starts_with("qwen") || arch.starts_with("ernie") || arch.starts_with("hunyuan")) return;
  m[arch + "expert_weights_norm"] = c.router.normalises;
  m[arch + "expert_weights_scale"] = static_cast<double>(c.router.scale);
  m[arch + "expert_gating_func"] = 1 + static_cast<int64_t>(c.router.score);
  if (c.router.n_groups > 1) {
    m[arch + "expert_group_count"] = int64_t{c.router.n_groups};
    m[arch + "expert_group_used_count"] = int64_t{c.router.groups_used};
  }
}

void put_recurrent(const ModelConfig& c, const std::string& arch, Metadata& m) {
  const LayerConfig& of = *c.first_recurrent();
  if (of.recurrence == Recurrence::kShortConv) {
    m[arch + "shortconv.l_cache"] = of.conv_len;
    return;
  }
  m[arch + "ssm.conv_kernel"] = of.conv_len;
  if (of.recurrence == Recurrence::kMamba2) {
    m[arch + "ssm.group_count"] = of.ssm.n_groups;
    m[arch + "ssm.time_step_rank"] = of.ssm.n_heads;
    m[arch + "ssm.state_size"] = of.ssm.state_len;
    m[arch + "ssm.inner_size"] = of.ssm.x_len();
    return;
  }
  m[arch + "ssm.group_count"] = of.delta.n_key_heads;
  m[arch + "ssm.time_step_rank"] = of.delta.n_value_heads;
  m[arch + "ssm.state_size"] = of.delta.key_len;
  m[arch + "ssm.inner_size"] = of.delta.v_len();
  std::vector<int64_t> is_recurrent;
  for (const LayerConfig& layer : c.layers) is_recurrent.push_back(layer.mixer == Mixer::kState);
  m[arch + "attention.recurrent_layers"] = is_recurrent;
}

Metadata metadata_of_encoder(const ModelConfig& c, const std::string& arch) {
  Metadata m;
  m["general.architecture"] = c.architecture;
  m[arch + "block_count"] = c.n_layers;
  m[arch + "embedding_length"] = c.width;
  m[arch + "feed_forward_length"] = of_layers(c, &LayerConfig::ffn_len);
  m[arch + "attention.head_count"] = of_layers(c, &LayerConfig::n_heads);
  m[arch + "attention.layer_norm_epsilon"] = static_cast<double>(c.norm_eps);
  m[arch + "attention.causal"] = false;
  m[arch + "context_length"] = c.trained_context_len;
  const Pooling pooling = c.pooling.value_or(Pooling::kNone);
  m[arch + "pooling_type"] = int64_t{pooling == Pooling::kMean    ? 1
                                     : pooling == Pooling::kFirst ? 2
                                     : pooling == Pooling::kLast  ? 3
                                     : pooling == Pooling::kRank  ? 4
                                                                  : 0};
  return m;
}

void add_experts(const ModelConfig& c, const LayerConfig& layer, const std::string& p, std::vector<TensorSpec>& specs) {
  using Kind = TensorSpec::Kind;
  const int64_t E = layer.n_experts, F = layer.expert_len, shared = layer.ffn_len, C = c.expert_width();
  specs.push_back({p + "ffn_gate_inp.weight", Kind::kRouter, {E, c.width}});
  if (c.router_bias) specs.push_back({p + "exp_probs_b.bias", Kind::kBias, {E}});
  if (c.ffn_has_gate()) specs.push_back({p + "ffn_gate_exps.weight", Kind::kMatrix, {E, F, C}});
  specs.push_back({p + "ffn_up_exps.weight", Kind::kMatrix, {E, F, C}});
  specs.push_back({p + "ffn_down_exps.weight", Kind::kMatrix, {E, C, F}});
  if (c.expert_latent_len > 0) {
    specs.push_back({p + "ffn_latent_down.weight", Kind::kMatrix, {C, c.width}});
    specs.push_back({p + "ffn_latent_up.weight", Kind::kMatrix, {c.width, C}});
  }
  if (c.shape == Shape::kGemma4) {
    specs.push_back({p + "ffn_gate_inp.scale", Kind::kNorm, {c.width}});
    specs.push_back({p + "ffn_down_exps.scale", Kind::kNorm, {E}});
    for (const char* name : {"post_ffw_norm_1.weight", "pre_ffw_norm_2.weight", "post_ffw_norm_2.weight"})
      specs.push_back({p + name, Kind::kNorm, {c.width}});
    return;
  }
  if (c.router_logit_bias) specs.push_back({p + "ffn_gate_inp.bias", Kind::kBias, {E}});
  if (c.expert_bias) {
    specs.push_back({p + "ffn_gate_exps.bias", Kind::kBias, {E, F}});
    specs.push_back({p + "ffn_up_exps.bias", Kind::kBias, {E, F}});
    specs.push_back({p + "ffn_down_exps.bias", Kind::kBias, {E, c.width}});
  }
  if (shared == 0) return;
  if (c.ffn_has_gate()) specs.push_back({p + "ffn_gate_shexp.weight", Kind::kMatrix, {shared, c.width}});
  specs.push_back({p + "ffn_up_shexp.weight", Kind::kMatrix, {shared, c.width}});
  specs.push_back({p + "ffn_down_shexp.weight", Kind::kMatrix, {c.width, shared}});
  if (c.shared_gate) specs.push_back({p + "ffn_gate_inp_shexp.weight", Kind::kBias, {c.width}});
}

void add_recurrent(const ModelConfig& c, const LayerConfig& layer, const std::string& p,
                   std::vector<TensorSpec>& specs) {
  using Kind = TensorSpec::Kind;
  if (layer.recurrence == Recurrence::kMamba2) {
    const SsmHeads& heads = layer.ssm;
    specs.push_back({p + "ssm_in.weight", Kind::kMatrix, {layer.recurrent_in_len(), c.width}});
    specs.push_back({p + "ssm_conv1d.weight", Kind::kTaps, {layer.conv_channels, layer.conv_len}});
    if (c.conv_bias) specs.push_back({p + "ssm_conv1d.bias", Kind::kBias, {layer.conv_channels}});
    specs.push_back({p + "ssm_a", Kind::kDecay, {heads.n_heads, 1}});
    specs.push_back({p + "ssm_d", Kind::kNorm, {heads.n_heads, 1}});
    specs.push_back({p + "ssm_dt.bias", Kind::kBias, {heads.n_heads}});
    if (c.ssm_norm != SsmNorm::kNone)
      specs.push_back({p + "ssm_norm.weight", Kind::kNorm, {heads.n_groups, heads.x_len() / heads.n_groups}});
    specs.push_back({p + "ssm_out.weight", Kind::kMatrix, {c.width, heads.x_len()}});
    return;
  }
  if (layer.recurrence == Recurrence::kDeltaNet) {
    const DeltaHeads& heads = layer.delta;
    const int64_t Hv = heads.n_value_heads;
    specs.push_back({p + "attn_qkv.weight", Kind::kMatrix, {heads.qkv_len(), c.width}});
    specs.push_back({p + "attn_gate.weight", Kind::kMatrix, {heads.v_len(), c.width}});
    if (gguf_architecture(c) == "qwen3next") {
      specs.push_back({p + "ssm_ba.weight", Kind::kMatrix, {2 * Hv, c.width}});
    } else {
      specs.push_back({p + "ssm_beta.weight", Kind::kMatrix, {Hv, c.width}});
      specs.push_back({p + "ssm_alpha.weight", Kind::kMatrix, {Hv, c.width}});
    }
    specs.push_back({p + "ssm_conv1d.weight", Kind::kTaps, {layer.conv_channels, layer.conv_len}});
    specs.push_back({p + "ssm_a", Kind::kDecay, {Hv}});
    specs.push_back({p + "ssm_dt.bias", Kind::kBias, {Hv}});
    specs.push_back({p + "ssm_norm.weight", Kind::kNorm, {heads.value_len}});
    specs.push_back({p + "ssm_out.weight", Kind::kMatrix, {c.width, heads.v_len()}});
    return;
  }
  specs.push_back({p + "shortconv.in_proj.weight", Kind::kMatrix, {3 * layer.conv_channels, c.width}});
  specs.push_back({p + "shortconv.conv.weight", Kind::kTaps, {layer.conv_channels, layer.conv_len}});
  specs.push_back({p + "shortconv.out_proj.weight", Kind::kMatrix, {c.width, layer.conv_channels}});
}

void add_attention(const ModelConfig& c, const LayerConfig& layer, const std::string& p,
                   std::vector<TensorSpec>& specs) {
  using Kind = TensorSpec::Kind;
  const bool owns_cache = layer.kv_owner == kOwnCache;
  const auto matrix = [&specs](std::string name, int64_t n, int64_t k) {
    specs.push_back({std::move(name), Kind::kMatrix, {n, k}});
  };
  const auto norm = [&specs](std::string name, int64_t n) { specs.push_back({std::move(name), Kind::kNorm, {n}}); };
  const auto bias = [&specs](std::string name, int64_t n) { specs.push_back({std::move(name), Kind::kBias, {n}}); };
  if (c.fused_qkv) {
    matrix(p + "attn_qkv.weight", layer.q_len() + layer.k_len() + layer.v_len(), c.width);
  } else {
    matrix(p + "attn_q.weight", (c.attention_gate ? 2 : 1) * layer.q_len(), c.width);
    if (owns_cache) matrix(p + "attn_k.weight", layer.k_len(), c.width);
    if (owns_cache && !layer.value_is_key) matrix(p + "attn_v.weight", layer.v_len(), c.width);
  }
  if (c.qkv_bias && c.fused_qkv) {
    bias(p + "attn_qkv.bias", layer.q_len() + layer.k_len() + layer.v_len());
  } else if (c.qkv_bias) {
    bias(p + "attn_q.bias", layer.q_len());
    if (owns_cache) bias(p + "attn_k.bias", layer.k_len());
    if (owns_cache) bias(p + "attn_v.bias", layer.v_len());
  }
  if (c.qk_norm) {
    norm(p + "attn_q_norm.weight", c.qk_norm_whole ? layer.q_len() : layer.key_len);
    if (owns_cache) norm(p + "attn_k_norm.weight", c.qk_norm_whole ? layer.k_len() : layer.key_len);
  }
  if (c.attention_gate_apart) matrix(p + "attn_gate.weight", layer.q_len(), c.width);
  matrix(p + "attn_output.weight", c.width, layer.attention_len());
  if (c.attention_output_bias) bias(p + "attn_output.bias", c.width);
  if (c.sinks) bias(p + "attn_sinks.weight", layer.n_heads);
}

void add_latent(const ModelConfig& c, const LayerConfig& l, const std::string& p, std::vector<TensorSpec>& specs) {
  using Kind = TensorSpec::Kind;
  if (c.q_rank > 0) {
    specs.push_back({p + "attn_q_a.weight", Kind::kMatrix, {c.q_rank, c.width}});
    specs.push_back({p + "attn_q_a_norm.weight", Kind::kNorm, {c.q_rank}});
    specs.push_back({p + "attn_q_b.weight", Kind::kMatrix, {l.latent_q_len(), c.q_rank}});
  } else {
    specs.push_back({p + "attn_q.weight", Kind::kMatrix, {l.latent_q_len(), c.width}});
  }
  specs.push_back({p + "attn_kv_a_mqa.weight", Kind::kMatrix, {l.key_len, c.width}});
  specs.push_back({p + "attn_kv_a_norm.weight", Kind::kNorm, {l.value_len}});
  specs.push_back({p + "attn_k_b.weight", Kind::kMatrix, {l.n_heads, l.value_len, l.plain_len}});
  specs.push_back({p + "attn_v_b.weight", Kind::kMatrix, {l.n_heads, l.out_len, l.value_len}});
  specs.push_back({p + "attn_output.weight", Kind::kMatrix, {c.width, l.n_heads * l.out_len}});
}

std::vector<TensorSpec> tensors_of_encoder(const ModelConfig& c) {
  using Kind = TensorSpec::Kind;
  std::vector<TensorSpec> specs;
  const auto rows = [&](std::string name, int64_t n) {
    if (n > 0) specs.push_back({std::move(name), Kind::kEmbedding, {n, c.width}});
  };
  const auto norm = [&](const std::string& name) {
    specs.push_back({name + ".weight", Kind::kNorm, {c.width}});
    specs.push_back({name + ".bias", Kind::kBias, {c.width}});
  };
  const auto linear = [&](const std::string& name, int64_t n, int64_t k) {
    specs.push_back({name + ".weight", Kind::kMatrix, {n, k}});
    specs.push_back({name + ".bias", Kind::kBias, {n}});
  };
  rows("token_embd.weight", c.vocab_size);
  rows("position_embd.weight", c.trained_context_len);
  rows("token_types.weight", c.n_token_types);
  norm("token_embd_norm");
  for (int64_t l = 0; l < c.n_layers; ++l) {
    const std::string p = "blk." + std::to_string(l) + ".";
    for (const char* name : {"attn_q", "attn_k", "attn_v", "attn_output"}) linear(p + name, c.width, c.width);
    norm(p + "attn_output_norm");
    linear(p + "ffn_up", c.layers[static_cast<size_t>(l)].ffn_len, c.width);
    linear(p + "ffn_down", c.width, c.layers[static_cast<size_t>(l)].ffn_len);
    norm(p + "layer_output_norm");
  }
  if (c.dense_head) linear("cls", c.width, c.width);
  if (c.n_labels > 0) linear("cls.output", c.n_labels, c.width);
  return specs;
}

// What values are read from.
struct Folder {
  const ModelFile& file;
  const QuantRecipe& recipe;
  const Architecture& architecture;
  const ModelConfig& config;

  bool has(const std::string& name) const {
    return file.find(name) != nullptr || QuantisedMatrix::is_in(file, recipe, name);
  }
  // `name` with what stands before it in this folder.
  std::string full_name(const std::string& name) const {
    for (const char* prefix : {"model.", "transformer.", "model.language_model.", "language_model.model.",
                               "language_model.", "bert.", "backbone."}) {
      if (has(prefix + name)) return prefix + name;
    }
    return name;
  }
  const LayerConfig& layer(int64_t l) const { return config.layers[static_cast<size_t>(l)]; }
};

constexpr int64_t kRowsAtOnce = 16;  // a cache line of GPTQ's columns

// Adds a tensor's values. `rows` and `columns` are those of a matrix, which a quantised one is checked against: its
// values are those of its codes before they are rounded to the type of its scales, where that is exact in rows of ours.
Status append(const Folder& folder, const std::string& name, int64_t rows, int64_t columns, std::vector<float>& out) {
  const std::string full = folder.full_name(name);
  const size_t at = out.size();
  if (QuantisedMatrix::is_in(folder.file, folder.recipe, full)) {
    ASSIGN_OR_RETURN(const QuantisedMatrix matrix,
                     QuantisedMatrix::find(folder.file, folder.recipe, full, rows, columns));
    std::vector<std::byte> some(static_cast<size_t>(kRowsAtOnce * row_bytes(matrix.dtype(), columns)));
    out.resize(at + static_cast<size_t>(rows * columns));
    for (int64_t r = 0; r < rows; r += kRowsAtOnce) {
      const int64_t end = std::min(rows, r + kRowsAtOnce);
      matrix.rows(r, end, some.data());
      float* to = out.data() + static_cast<int64_t>(at) + r * columns;
      dequantise_row(matrix.dtype(), some.data(), to, (end - r) * columns);
    }
    return {};
  }
  ASSIGN_OR_RETURN(TensorView view, folder.file.tensor(full));
  if (!is_weight_type(view.dtype)) {
    return unsupported(folder.file.path() + ": tensor " + in_quotes(name) + " has the type " +
                       std::string(traits(view.dtype).name) + ", which GGUF's matrices have not");
  }
  out.resize(at + static_cast<size_t>(view.n_elements()));
  dequantise(view, out.data() + at);
  return {};
}

// [columns, rows] -> [rows, columns].
std::vector<float> transposed(const std::vector<float>& values, int64_t rows, int64_t columns) {
  std::vector<float> out(values.size());
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < columns; ++c)
      out[static_cast<size_t>(r * columns + c)] = values[static_cast<size_t>(c * rows + r)];
  }
  return out;
}

// Rows or biases of a query, a key and a value of each head, as those of all queries, all keys and all values.
std::vector<float> parted(const ModelConfig& config, const std::vector<float>& values) {
  const int64_t H = config.layers[0].n_heads, n = std::ssize(values) / 3 / H;
  std::vector<float> out;
  for (int64_t part = 0; part < 3; ++part) {
    for (int64_t h = 0; h < H; ++h) {
      const auto from = values.begin() + (3 * h + part) * n;
      out.insert(out.end(), from, from + n);
    }
  }
  return out;
}

Result<std::vector<float>> values_of(const Folder& folder, const std::string& canonical, int64_t layer,
                                     const std::vector<int64_t>& dims);

// Rows of q, k and v, or of z, where a folder has those of each key head together.
Result<std::vector<float>> part_of_qkvz(const Folder& folder, const std::string& canonical, int64_t layer,
                                        const std::vector<int64_t>& dims) {
  const DeltaHeads& heads = folder.layer(layer).delta;
  const int64_t n_rows = 2 * heads.k_len() + 2 * heads.v_len();
  ASSIGN_OR_RETURN(const std::vector<float> all, values_of(folder, "blk.{}.ssm_in.weight", layer, {n_rows, dims[1]}));
  return ibid::part_of_qkvz(heads, all, dims[1], canonical == "blk.{}.attn_gate.weight");
}

// Of gpt-oss, whose folder has gate and up in turn along N: [E, K, N], or MXFP4 as blocks [E, N, K / 32, 16] beside
// their exponents [E, N, K / 32].
struct TurnedExperts {
  TensorView columns, blocks, exponents;  // one, or the other two
  int64_t step = 1, first = 0;            // of the folder's rows those of GGUF's
};
Result<TurnedExperts> turned_experts_of(const Folder& folder, const std::string& canonical, int64_t layer,
                                        const std::vector<int64_t>& dims) {
  const bool is_down = canonical.find("_down_") != std::string::npos, is_bias = canonical.ends_with(".bias");
  const std::string name = folder.full_name("layers." + std::to_string(layer) + ".mlp.experts." +
                                            (is_down ? "down_proj" : "gate_up_proj") + (is_bias ? "_bias" : ""));
  TurnedExperts out = {.step = is_down ? 1 : 2, .first = canonical.find("_up_") != std::string::npos ? 1 : 0};
  const int64_t E = dims[0], N = dims[1] * out.step, K = is_bias ? 1 : dims[2];
  const std::string blocks = folder.full_name("layers." + std::to_string(layer) + ".mlp.experts." +
                                              (is_down ? "down_proj" : "gate_up_proj") + "_blocks");
  if (!is_bias && folder.file.find(blocks) != nullptr) {
    const std::string exponents = blocks.substr(0, blocks.size() - 6) + "scales";
    ASSIGN_OR_RETURN(out.blocks, folder.file.tensor(blocks));
    ASSIGN_OR_RETURN(out.exponents, folder.file.tensor(exponents));
    const bool fits = K % 32 == 0 && out.blocks.dtype == DType::kI8 && out.exponents.dtype == DType::kI8 &&
                      out.blocks.rank == 4 && out.exponents.rank == 3 && out.blocks.dim[0] == E &&
                      out.blocks.dim[1] == N && out.blocks.dim[2] == K / 32 && out.blocks.dim[3] == 16 &&
                      out.exponents.n_elements() == E * N * (K / 32);
    if (fits) return out;
    return invalid(folder.file.path() + ": tensor " + in_quotes(blocks) +
                       " or its scales are no U8 of MXFP4's blocks of " + std::to_string(E) + " matrices [" +
                       std::to_string(N) + ", " + std::to_string(K) + "]",
                   blocks);
  }
  ASSIGN_OR_RETURN(out.columns, folder.file.tensor(name));
  if (is_weight_type(out.columns.dtype) && out.columns.n_elements() == E * N * K) return out;
  return invalid(folder.file.path() + ": tensor " + in_quotes(name) + " is of a type or size that its place has not",
                 name);
}

// The rows of blocks, one matrix after the other.
std::vector<std::byte> rows_of_blocks(const TurnedExperts& experts, const std::vector<int64_t>& dims) {
  const int64_t n_blocks = dims[2] / 32, n_rows = experts.blocks.dim[1];
  std::vector<std::byte> out(static_cast<size_t>(dims[0] * dims[1] * row_bytes(DType::kMXFP4, dims[2])));
  std::byte* to = out.data();
  for (int64_t row = 0; row < dims[0] * dims[1]; ++row) {
    const int64_t from = row / dims[1] * n_rows + row % dims[1] * experts.step + experts.first;
    for (int64_t b = from * n_blocks; b < (from + 1) * n_blocks; ++b) {
      const auto* pairs = reinterpret_cast<const uint8_t*>(experts.blocks.data) + b * 16;
      const auto code = [pairs](int i) { return pairs[i / 2] >> (i % 2 * 4) & 15; };
      BlockMXFP4 block;
      block.exponent = static_cast<uint8_t>(experts.exponents.data[b]);
      for (int i = 0; i < 16; ++i) block.codes[i] = static_cast<uint8_t>(code(i) | code(i + 16) << 4);
      std::memcpy(to, &block, sizeof block);
      to += sizeof block;
    }
  }
  return out;
}

Result<std::vector<float>> turned_values_of(const Folder& folder, const std::string& canonical, int64_t layer,
                                            const std::vector<int64_t>& dims) {
  ASSIGN_OR_RETURN(const TurnedExperts experts, turned_experts_of(folder, canonical, layer, dims));
  const int64_t N = dims[1], K = canonical.ends_with(".bias") ? 1 : dims[2], step = experts.step;
  std::vector<float> all, out(static_cast<size_t>(dims[0] * N * K));
  if (experts.blocks.data != nullptr) {
    const std::vector<std::byte> rows = rows_of_blocks(experts, dims);
    dequantise_row(DType::kMXFP4, rows.data(), out.data(), std::ssize(out));
    return out;
  }
  all.resize(static_cast<size_t>(experts.columns.n_elements()));
  dequantise(experts.columns, all.data());
  auto to = out.begin();
  for (int64_t e = 0; e < dims[0]; ++e) {
    for (int64_t n = 0; n < N; ++n) {
      for (int64_t k = 0; k < K; ++k)
        *to++ = all[static_cast<size_t>((e * K + k) * N * step + n * step + experts.first)];
    }
  }
  return out;
}

// k_b[H, R, plain] or v_b[H, V, R], of a tensor whose rows are of each head `plain` of keys, then V of values.
Result<std::vector<float>> half_of_kv_b(const Folder& folder, bool of_keys, int64_t layer,
                                        const std::vector<int64_t>& dims) {
  std::vector<float> all, out;
  const int64_t H = dims[0], R = of_keys ? dims[1] : dims[2];
  TRY(append(folder, "layers." + std::to_string(layer) + ".self_attn.kv_b_proj.weight",
             H * (folder.layer(layer).plain_len + folder.layer(layer).out_len), R, all));
  const int64_t n_rows = std::ssize(all) / R / H;
  const int64_t plain = of_keys ? dims[2] : n_rows - dims[1];
  const auto at = [&](int64_t h, int64_t row, int64_t r) {
    return all[static_cast<size_t>((h * n_rows + row) * R + r)];
  };
  for (int64_t h = 0; h < H; ++h) {
    for (int64_t n = 0; n < dims[1]; ++n) {
      for (int64_t k = 0; k < dims[2]; ++k) out.push_back(of_keys ? at(h, k, n) : at(h, plain + n, k));
    }
  }
  return out;
}

// Half of the rows of granite 4's gate and up in one.
Result<std::vector<float>> half_of_gate_up(const Folder& folder, bool is_gate, int64_t layer,
                                           const std::vector<int64_t>& dims) {
  std::vector<float> both;
  TRY(append(folder, "layers." + std::to_string(layer) + ".shared_mlp.input_linear.weight", 2 * dims[0], dims[1],
             both));
  const auto half = both.begin() + std::ssize(both) / 2;
  return is_gate ? std::vector<float>(both.begin(), half) : std::vector<float>(half, both.end());
}

bool is_half_of_gate_up(const Folder& folder, const std::string& canonical) {
  if (folder.architecture.folder_name != "granitemoehybrid") return false;
  return canonical == "blk.{}.ffn_gate.weight" || canonical == "blk.{}.ffn_gate_shexp.weight" ||
         canonical == "blk.{}.ffn_up.weight" || canonical == "blk.{}.ffn_up_shexp.weight";
}
bool is_turned(const Folder& folder, const std::string& canonical) {
  return folder.architecture.folder_name == "gpt_oss" && canonical.find("_exps.") != std::string::npos;
}

// Of several rows of the table for `canonical` the one whose tensor the folder has; `missing` becomes a name that it
// has not. Null: none.
const WeightName* row_of(const Folder& folder, const std::string& canonical, int64_t layer, std::string& missing) {
  missing = canonical;
  for (const WeightName& n : folder.architecture.names) {
    if (n.canonical != canonical) continue;
    missing = layer_name(layer_name(n.folder, layer), 0);
    if (folder.has(folder.full_name(missing))) return &n;
  }
  return nullptr;
}

// What the folder has of it: one tensor, one of each expert, or half of the rows of gate and up in one.
Result<std::vector<float>> values_of(const Folder& folder, const std::string& canonical, int64_t layer,
                                     const std::vector<int64_t>& dims) {
  std::vector<float> out;
  if (is_turned(folder, canonical)) return turned_values_of(folder, canonical, layer, dims);
  const bool is_k_b = canonical == "blk.{}.attn_k_b.weight";
  if (is_k_b || canonical == "blk.{}.attn_v_b.weight") return half_of_kv_b(folder, is_k_b, layer, dims);
  if (is_half_of_gate_up(folder, canonical))
    return half_of_gate_up(folder, canonical.find("_gate") != std::string::npos, layer, dims);
  std::string missing;
  if (const WeightName* n = row_of(folder, canonical, layer, missing); n != nullptr) {
    const std::string name = layer_name(n->folder, layer);
    const bool each = name.find("{}") != std::string::npos;
    const size_t rank = dims.size();
    int64_t rows = rank < 2 ? 1 : dims[rank - 2], columns = dims.back();
    if (n->transposed) std::swap(rows, columns);
    for (int64_t e = 0; e < (each ? dims[0] : 1); ++e) TRY(append(folder, layer_name(name, e), rows, columns, out));
    if (n->by_head) return parted(folder.config, out);
    return n->transposed ? transposed(out, dims[0], dims[1]) : out;
  }
  if (canonical == "blk.{}.attn_qkv.weight" || canonical == "blk.{}.attn_gate.weight")
    return part_of_qkvz(folder, canonical, layer, dims);
  const bool is_gate = canonical == "blk.{}.ffn_gate_exps.weight";
  if (!is_gate && canonical != "blk.{}.ffn_up_exps.weight")
    return invalid(folder.file.path() + " has no tensor " + missing);
  const int64_t n = dims[1] * dims[2];
  ASSIGN_OR_RETURN(const std::vector<float> both,
                   values_of(folder, "blk.{}.ffn_gate_up_exps.weight", layer, {dims[0], 2 * dims[1], dims[2]}));
  for (int64_t e = 0; e < dims[0]; ++e) {
    const auto half = both.begin() + (2 * e + (is_gate ? 0 : 1)) * n;
    out.insert(out.end(), half, half + n);
  }
  return out;
}

}  // namespace

namespace {

// A delta net's tensor as GGUF has it. Of qwen3.5 value heads h of the file are the folder's (h mod Hk) r + h / Hk.
void to_gguf_order(const ModelConfig& c, const DeltaHeads& heads, const std::string& pattern,
                   const std::vector<int64_t>& dims, std::vector<float>& values) {
  const auto is = [&](std::string_view name) { return pattern == "blk.{}." + std::string(name); };
  const bool is_output = is("ssm_out.weight");
  const bool has_value_heads = is_output || is("attn_qkv.weight") || is("attn_gate.weight") || is("ssm_beta.weight") ||
                               is("ssm_alpha.weight") || is("ssm_conv1d.weight") || is("ssm_a") || is("ssm_dt.bias");
  if (gguf_architecture(c) == "qwen3next" || !has_value_heads) return;
  const int64_t n = is_output ? dims[1] : dims[0], columns = is_output || dims.size() == 1 ? 1 : dims[1];
  const int64_t first = is("attn_qkv.weight") || is("ssm_conv1d.weight") ? 2 * heads.k_len() : 0;
  const int64_t len = (n - first) / heads.n_value_heads, r = heads.n_value_heads / heads.n_key_heads;
  const std::vector<float> was = values;
  for (int64_t row = 0; row < (is_output ? dims[0] : 1); ++row) {
    for (int64_t h = 0; h < heads.n_value_heads; ++h) {
      const int64_t from = h % heads.n_key_heads * r + h / heads.n_key_heads;
      const auto at = [&](int64_t head) { return (row * n + first + head * len) * columns; };
      std::copy_n(was.begin() + at(from), len * columns, values.begin() + at(h));
    }
  }
}

}  // namespace

TensorView view_of(void* bytes, DType dtype, const std::vector<int64_t>& dims) {
  if (dims.size() == 1) return TensorView(bytes, dtype, {dims[0]});
  if (dims.size() == 2) return TensorView(bytes, dtype, {dims[0], dims[1]});
  return TensorView(bytes, dtype, {dims[0], dims[1], dims[2]});
}

Metadata metadata_of(const ModelConfig& c) {
  const std::string name = gguf_architecture(c), arch = name + ".";
  Metadata m;
  if (c.is_encoder()) return metadata_of_encoder(c, arch);
  m["general.architecture"] = name;
  m[arch + "block_count"] = c.n_layers;
  m[arch + "embedding_length"] = c.width;
  if (c.first_with_experts() == nullptr || c.shape == Shape::kGemma4) {
    m[arch + "feed_forward_length"] = of_layers(c, &LayerConfig::ffn_len);
  } else {
    put_experts(c, arch, m);
  }
  // Of a layer without attention no number has a place, but of lfm2's that of its key/value heads, 0.
  const LayerConfig* latent = c.first_with(Mixer::kLatent);
  const LayerConfig* attention = latent != nullptr ? latent : c.first_with(Mixer::kAttention);
  CHECK(attention != nullptr, "a layer with attention");
  const bool is_hybrid = c.first_recurrent() != nullptr;
  m[arch + "attention.head_count"] = is_hybrid ? attention->n_heads : of_layers(c, &LayerConfig::n_heads);
  const bool has_zeros = !is_hybrid || c.first_recurrent()->recurrence != Recurrence::kDeltaNet;
  m[arch + "attention.head_count_kv"] = has_zeros ? of_layers(c, &LayerConfig::n_kv_heads) : attention->n_kv_heads;
  m[arch + "attention.key_length"] = attention->key_len;
  m[arch + "attention.value_length"] = attention->value_len;
  if (is_hybrid) put_recurrent(c, arch, m);
  if (latent != nullptr) {
    m[arch + "attention.kv_lora_rank"] = latent->value_len;
    m[arch + "attention.key_length_mla"] = latent->plain_len + latent->key_len - latent->value_len;
    m[arch + "attention.value_length_mla"] = latent->out_len;
    if (c.q_rank > 0) m[arch + "attention.q_lora_rank"] = c.q_rank;
  }
  const bool has_means = c.shape == Shape::kParallel || c.shape == Shape::kGpt;
  m[arch + (has_means ? "attention.layer_norm_epsilon" : "attention.layer_norm_rms_epsilon")] =
      static_cast<double>(c.norm_eps);
  m[arch + "context_length"] = c.trained_context_len;
  m[arch + "vocab_size"] = c.vocab_size;
  if (c.embedding_scale != 1 && c.shape == Shape::kLlama) {
    m[arch + "embedding_scale"] = static_cast<double>(c.embedding_scale);
  }
  if (c.residual_scale != 1) m[arch + "residual_scale"] = static_cast<double>(c.residual_scale);
  if (c.shape == Shape::kParallel || name == "muse-glimmer") {
    m[arch + "logit_scale"] = static_cast<double>(c.logit_scale);
  } else if (c.logit_scale != 1) {
    m[arch + "logit_scale"] = 1.0 / static_cast<double>(c.logit_scale);
  }
  if (name.starts_with("granite")) m[arch + "attention.scale"] = static_cast<double>(attention->attention_scale);
  if (name == "granitehybrid") m[arch + "rope.scaling.finetuned"] = !c.ropes.empty();
  if (name == "mpt") m[arch + "attention.max_alibi_bias"] = static_cast<double>(c.alibi_bias_max);
  if (c.qkv_clip != 0) m[arch + "attention.clamp_kqv"] = static_cast<double>(c.qkv_clip);
  if (c.query_scale != 0 && latent != nullptr) m[arch + "attention.temperature_length"] = c.query_scale_len;
  if (c.query_scale != 0) m[arch + "attention.temperature_scale"] = static_cast<double>(c.query_scale);
  put_rope(c, arch, m);
  if (c.n_picture_layers > 0) m[arch + "n_deepstack_layers"] = c.n_picture_layers;
  std::vector<int64_t> slides;
  int64_t window = 0;
  for (const LayerConfig& layer : c.layers) {
    slides.push_back(layer.window != 0);
    window = std::max<int64_t>(window, layer.window);
  }
  if (window != 0) m[arch + "attention.sliding_window"] = window;
  if ((c.shape == Shape::kPostNorm || c.shape == Shape::kParallel || name == "muse-glimmer") && window != 0)
    m[arch + "attention.sliding_window_pattern"] = slides;
  if (name == "muse-glimmer" && c.logit_soft_cap != 0)
    m[arch + "final_logit_softcapping"] = static_cast<double>(c.logit_soft_cap);
  if (name.starts_with("gemma")) {
    m[arch + "attention.sliding_window_pattern"] = slides;
    if (c.shape == Shape::kGemma4) {
      put_gemma4(c, arch, m);
    } else {
      m[arch + "attention.scale"] = static_cast<double>(c.layers.front().attention_scale);
    }
    if (c.attention_soft_cap != 0) m[arch + "attn_logit_softcapping"] = static_cast<double>(c.attention_soft_cap);
    if (c.logit_soft_cap != 0) m[arch + "final_logit_softcapping"] = static_cast<double>(c.logit_soft_cap);
  }
  return m;
}

std::vector<TensorSpec> tensors_of(const ModelConfig& c) {
  if (c.is_encoder()) return tensors_of_encoder(c);
  using Kind = TensorSpec::Kind;
  std::vector<TensorSpec> specs;
  auto matrix = [&specs](std::string name, int64_t n, int64_t k) {
    specs.push_back({std::move(name), Kind::kMatrix, {n, k}});
  };
  auto norm = [&specs](std::string name, int64_t n) { specs.push_back({std::move(name), Kind::kNorm, {n}}); };
  auto bias = [&specs](std::string name, int64_t n) { specs.push_back({std::move(name), Kind::kBias, {n}}); };
  specs.push_back({"token_embd.weight", Kind::kEmbedding, {c.vocab_size, c.width}});
  if (!c.tied_embedding) matrix("output.weight", c.vocab_size, c.width);
  norm(c.architecture.starts_with("lfm2") ? "token_embd_norm.weight" : "output_norm.weight", c.width);
  const bool has_norm_bias = c.shape == Shape::kGpt && c.norm_bias;
  if (has_norm_bias) bias("output_norm.bias", c.width);
  if (c.embedding_norm) norm("token_embd_norm.weight", c.width);
  if (c.embedding_norm && has_norm_bias) bias("token_embd_norm.bias", c.width);
  if (c.learned_positions)
    specs.push_back({"position_embd.weight", Kind::kEmbedding, {c.trained_context_len, c.width}});
  if (c.layer_embedding_len > 0) {
    specs.push_back({"per_layer_token_embd.weight", Kind::kEmbedding, {c.vocab_size, c.layer_embeddings_len}});
    matrix("per_layer_model_proj.weight", c.layer_embeddings_len, c.width);
    norm("per_layer_proj_norm.weight", c.layer_embedding_len);
  }
  for (int64_t l = 0; l < c.n_layers; ++l) {
    const std::string p = "blk." + std::to_string(l) + ".";
    const LayerConfig& layer = c.layers[static_cast<size_t>(l)];
    if (c.shape != Shape::kPostNorm) norm(p + "attn_norm.weight", c.width);
    if (c.shape != Shape::kPostNorm && c.shape != Shape::kParallel && !c.one_part_layers) {
      norm(p + (c.attention_gate ? "post_attention_norm.weight" : "ffn_norm.weight"), c.width);
    }
    if (has_norm_bias) bias(p + "attn_norm.bias", c.width);
    if (has_norm_bias) bias(p + "ffn_norm.bias", c.width);
    if (layer.is_recurrent()) add_recurrent(c, layer, p, specs);
    if (layer.mixer == Mixer::kLatent) {
      add_latent(c, layer, p, specs);
    } else if (layer.mixer == Mixer::kAttention) {
      add_attention(c, layer, p, specs);
    }
    if (c.ffn_bias) bias(p + "ffn_up.bias", layer.ffn_len);
    if (c.ffn_bias) bias(p + "ffn_down.bias", c.width);
    const bool is_dense = (layer.n_experts == 0 && layer.has_ffn()) || c.shape == Shape::kGemma4;
    if (layer.n_experts > 0) add_experts(c, layer, p, specs);
    if (is_dense && c.fused_gate_up) {
      matrix(p + "ffn_up.weight", 2 * layer.ffn_len, c.width);
    } else if (is_dense && !c.ffn_has_gate()) {
      matrix(p + "ffn_up.weight", layer.ffn_len, c.width);
    } else if (is_dense) {
      matrix(p + "ffn_gate.weight", layer.ffn_len, c.width);
      matrix(p + "ffn_up.weight", layer.ffn_len, c.width);
    }
    if (is_dense) matrix(p + "ffn_down.weight", c.width, layer.ffn_len);
    if (c.shape == Shape::kGemma || c.shape == Shape::kGemma4 || c.shape == Shape::kPostNorm) {
      norm(p + "post_attention_norm.weight", c.width);
      norm(p + "post_ffw_norm.weight", c.width);
    }
    if (c.shape == Shape::kGemma4) norm(p + "layer_output_scale.weight", 1);
    if (c.layer_embedding_len > 0) {
      matrix(p + "inp_gate.weight", c.layer_embedding_len, c.width);
      matrix(p + "proj.weight", c.width, c.layer_embedding_len);
      norm(p + "post_norm.weight", c.width);
    }
  }
  return specs;
}

std::map<std::string, std::vector<float>> rope_vectors_of(const ModelConfig& c) {
  std::map<std::string, std::vector<float>> out;
  if (c.ropes.empty()) return out;
  const RopeConfig& rope = c.ropes[0];
  if (c.shape == Shape::kGemma4) {
    std::vector<float>& divisors = out["rope_freqs.weight"];
    divisors.assign(static_cast<size_t>(rope.n_pairs), 1e30f);
    std::fill_n(divisors.begin(), rope.n_turning > 0 ? rope.n_turning : rope.n_pairs, 1.0f);
  }
  if (rope.scaling == RopeScaling::kLlama3) {
    RopeConfig plain = rope;
    plain.scaling = RopeScaling::kNone;
    const RopeTable scaled = make_rope_table(rope, c.trained_context_len),
                    unscaled = make_rope_table(plain, c.trained_context_len);
    std::vector<float>& divisors = out["rope_freqs.weight"];
    for (size_t i = 0; i < scaled.frequency.size(); ++i) {
      divisors.push_back(static_cast<float>(unscaled.frequency[i] / scaled.frequency[i]));
    }
  }
  if (rope.scaling == RopeScaling::kLongrope) {
    out["rope_factors_short.weight"] = {rope.short_factors.begin(), rope.short_factors.end()};
    out["rope_factors_long.weight"] = {rope.long_factors.begin(), rope.long_factors.end()};
  }
  return out;
}

namespace {

// The weights of GGUF hold what a folder multiplies the outputs of products by.
void fold_multipliers(const ModelConfig& c, const std::string& pattern, const LayerConfig& layer,
                      const std::vector<int64_t>& dims, std::vector<float>& values) {
  const Multipliers& m = c.multipliers;
  const std::pair<std::string_view, float> kWhole[] = {
      {"token_embd.weight", c.embedding_scale}, {"output.weight", c.logit_scale},
      {"blk.{}.attn_q.weight", m.query},        {"blk.{}.attn_k.weight", m.key},
      {"blk.{}.attn_v.weight", m.value},        {"blk.{}.attn_output.weight", m.attention},
      {"blk.{}.ssm_out.weight", m.ssm},         {"blk.{}.ffn_gate.weight", m.gate},
      {"blk.{}.ffn_down.weight", m.down}};
  for (const auto& [name, by] : kWhole) {
    for (float& v : values) v *= pattern == name ? by : 1.0f;
  }
  if (pattern != "blk.{}.ssm_in.weight") return;
  const int64_t X = layer.ssm.x_len(), of_groups = layer.ssm.n_groups * layer.ssm.state_len;
  const std::pair<int64_t, float> kParts[] = {
      {X, m.z}, {X, m.x}, {of_groups, m.b}, {of_groups, m.c}, {layer.ssm.n_heads, m.dt}};
  auto at = values.begin();
  for (const auto& [rows, by] : kParts) {
    for (int64_t i = 0; i < rows * dims[1]; ++i) *at++ *= by;
  }
}

// Rows of q and k, of `columns` values each, where GGUF has them in another order.
void order_heads(const ModelConfig& c, const LayerConfig& of, const std::string& pattern, int64_t columns,
                 std::vector<float>& values) {
  const bool is_q = pattern.find("attn_q.") != std::string::npos, is_k = pattern.find("attn_k.") != std::string::npos;
  if (interleaves(gguf_architecture(c)) && (is_q || is_k))
    values = interleave_rows(values, is_q ? of.n_heads : of.n_kv_heads, of.key_len, columns);
}

}  // namespace

ModelConfig gguf_config_of(const ModelConfig& of_folder) {
  ModelConfig config = of_folder;
  const std::string name = gguf_architecture(config);
  if (name == "granitehybrid") config.fused_gate_up = false;
  if (name == "falcon-h1") config.embedding_scale = config.logit_scale = 1;
  return config;
}

namespace {

// "blk.3.attn_q.weight": "blk.{}.attn_q.weight", of layer 3.
std::string pattern_of(const std::string& name, int64_t& layer) {
  layer = 0;
  if (!name.starts_with("blk.")) return name;
  const size_t end = name.find('.', 4);
  layer = std::stoll(name.substr(4, end - 4));
  return "blk.{}" + name.substr(end);
}

}  // namespace

Result<std::vector<float>> gguf_values(const ModelFile& file, const QuantRecipe& recipe, const ModelConfig& config,
                                       const TensorSpec& spec) {
  ASSIGN_OR_RETURN(const Architecture* architecture, find_architecture(file));
  const Folder folder = {file, recipe, *architecture, config};
  int64_t layer = 0;
  std::string pattern = pattern_of(spec.name, layer);
  if (pattern == "token_embd_norm.weight" && !config.is_encoder() && !config.embedding_norm)
    pattern = "output_norm.weight";
  const bool is_q_norm = pattern == "blk.{}.attn_q_norm.weight";
  if (config.query_norm != 0 && (is_q_norm || pattern == "blk.{}.attn_k_norm.weight"))
    return std::vector<float>(static_cast<size_t>(spec.dims[0]), is_q_norm ? config.query_norm : 1.0f);
  if (config.attention_gate && pattern == "blk.{}.post_attention_norm.weight") pattern = "blk.{}.ffn_norm.weight";
  ASSIGN_OR_RETURN(std::vector<float> values, values_of(folder, pattern, layer, spec.dims));
  int64_t n = 1;
  for (const int64_t dim : spec.dims) n *= dim;
  if (std::ssize(values) != n) {
    return invalid(file.path() + ": what becomes " + in_quotes(spec.name) + " has " + std::to_string(values.size()) +
                   " elements; expected " + std::to_string(n));
  }
  const LayerConfig& of = folder.layer(layer);
  if (gguf_architecture(config) == "falcon-h1") fold_multipliers(config, pattern, of, spec.dims, values);
  if (pattern == "blk.{}.ssm_a") {
    for (float& v : values) v = -math::exp(v);
  }
  if (of.recurrence == Recurrence::kDeltaNet) to_gguf_order(config, of.delta, pattern, spec.dims, values);
  if (spec.kind == TensorSpec::Kind::kNorm && !pattern.ends_with("ssm_norm.weight")) {
    const bool is_plain = config.output_norm_is_plain && pattern == "output_norm.weight";
    for (float& v : values) v += is_plain ? 0 : config.norm_offset;
  }
  order_heads(config, of, pattern, spec.dims.size() == 2 ? spec.dims[1] : 1, values);
  return values;
}

std::string folder_tensor_of(const ModelFile& file, const QuantRecipe& recipe, const Architecture& architecture,
                             const ModelConfig& config, const std::string& name) {
  const Folder folder = {file, recipe, architecture, config};
  int64_t layer = 0;
  const std::string pattern = pattern_of(name, layer);
  if (is_turned(folder, pattern) || is_half_of_gate_up(folder, pattern)) return {};
  std::string missing;
  const WeightName* row = row_of(folder, pattern, layer, missing);
  if (row == nullptr || row->transposed || row->by_head) return {};
  const std::string own = layer_name(row->folder, layer);
  return own.find("{}") != std::string::npos ? std::string() : folder.full_name(own);
}

Result<std::optional<GgufCodes>> gguf_codes(const ModelFile& file, const QuantRecipe& recipe, const ModelConfig& config,
                                            const TensorSpec& spec, bool with_rows) {
  std::optional<GgufCodes> none;
  const bool is_matrix = spec.kind == TensorSpec::Kind::kMatrix || spec.kind == TensorSpec::Kind::kEmbedding;
  if (recipe.method == QuantMethod::kNone || !is_matrix || spec.dims.size() < 2) return none;
  ASSIGN_OR_RETURN(const Architecture* architecture, find_architecture(file));
  const Folder folder = {file, recipe, *architecture, config};
  int64_t layer = 0;
  const std::string pattern = pattern_of(spec.name, layer);
  GgufCodes out = {.dtype = DType::kMXFP4};
  if (is_turned(folder, pattern)) {
    ASSIGN_OR_RETURN(const TurnedExperts experts, turned_experts_of(folder, pattern, layer, spec.dims));
    if (experts.blocks.data == nullptr) return none;
    if (with_rows) out.rows = rows_of_blocks(experts, spec.dims);
    return std::optional(std::move(out));
  }
  // Values that GGUF multiplies, turns or takes from parts of a tensor.
  const LayerConfig& of = folder.layer(layer);
  const bool is_output = of.recurrence == Recurrence::kDeltaNet && pattern == "blk.{}.ssm_out.weight";
  const bool is_of_kv_b = pattern == "blk.{}.attn_k_b.weight" || pattern == "blk.{}.attn_v_b.weight";
  if (gguf_architecture(config) == "falcon-h1" || is_output || is_of_kv_b || is_half_of_gate_up(folder, pattern))
    return none;
  std::string missing;
  const WeightName* row = row_of(folder, pattern, layer, missing);
  if (row == nullptr || row->transposed) return none;
  const int64_t N = spec.dims[spec.dims.size() - 2], K = spec.dims.back();
  const bool each = spec.dims.size() == 3;
  // The folder's rows in GGUF's order, by their numbers.
  std::vector<float> order(static_cast<size_t>(N));
  for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<float>(i);
  if (row->by_head) order = parted(config, order);
  if (of.recurrence == Recurrence::kDeltaNet) to_gguf_order(config, of.delta, pattern, {N, 1}, order);
  order_heads(config, of, pattern, 1, order);
  for (int64_t e = 0; e < (each ? spec.dims[0] : 1); ++e) {
    const std::string name = folder.full_name(layer_name(layer_name(row->folder, layer), e));
    if (!QuantisedMatrix::is_in(file, recipe, name)) return none;
    ASSIGN_OR_RETURN(const QuantisedMatrix matrix, QuantisedMatrix::find(file, recipe, name, N, K));
    if (e > 0 && matrix.dtype() != out.dtype) return none;
    out.dtype = matrix.dtype();
    if (!with_rows) continue;
    const int64_t n_bytes = row_bytes(out.dtype, K);
    std::vector<std::byte> rows(static_cast<size_t>(N * n_bytes));
    for (int64_t n = 0; n < N; n += kRowsAtOnce)
      matrix.rows(n, std::min(N, n + kRowsAtOnce), rows.data() + n * n_bytes);
    for (const float from : order) {
      const auto at = rows.begin() + static_cast<int64_t>(from) * n_bytes;
      out.rows.insert(out.rows.end(), at, at + n_bytes);
    }
  }
  return std::optional(std::move(out));
}

std::vector<float> part_of_qkvz(const DeltaHeads& heads, const std::vector<float>& all, int64_t columns, bool is_z) {
  const int64_t of_values = heads.v_len() / heads.n_key_heads, group = 2 * heads.key_len + 2 * of_values;
  std::vector<float> out;
  const auto add = [&](int64_t begin, int64_t n) {
    for (int64_t g = 0; g < heads.n_key_heads; ++g) {
      const auto from = all.begin() + (g * group + begin) * columns;
      out.insert(out.end(), from, from + n * columns);
    }
  };
  if (is_z) {
    add(2 * heads.key_len + of_values, of_values);
    return out;
  }
  add(0, heads.key_len);
  add(heads.key_len, heads.key_len);
  add(2 * heads.key_len, of_values);
  return out;
}

Status lora_in_gguf_order(const ModelConfig& config, const std::string& pattern, int64_t layer, int64_t n_inputs,
                          int64_t n_outputs, int64_t rank, std::vector<float>& a, std::vector<float>& b) {
  if (gguf_architecture(config) == "falcon-h1") {
    return unsupported(
        "a folder's adapter on falcon-h1 in GGUF, whose weights hold multipliers that the file does not name; "
        "use the model's folder",
        pattern);
  }
  if (config.layers.empty() || !pattern.starts_with("blk.")) return {};
  const LayerConfig& of = config.layers[static_cast<size_t>(layer)];
  if (of.recurrence == Recurrence::kDeltaNet) {
    const bool is_output = pattern == "blk.{}.ssm_out.weight";
    to_gguf_order(config, of.delta, pattern, is_output ? std::vector{rank, n_inputs} : std::vector{n_outputs, rank},
                  is_output ? a : b);
  }
  order_heads(config, of, pattern, rank, b);
  return {};
}

}  // namespace ibid
