// How GGUF and config.json describe experts.
#include <algorithm>
#include <array>

#include "model/arch/common.h"

namespace ibid::arch {
namespace {

Result<int64_t> count_of_experts(const ModelFile& file, const std::string& key) {
  ASSIGN_OR_RETURN(const int64_t n, file.meta_int(key));
  if (n >= 1 && n <= kMaxExperts) return n;
  return invalid(
      "the model has " + std::to_string(n) + " experts in a layer; expected 1 to " + std::to_string(kMaxExperts), key);
}

Status set_number(const ModelFile& file, const std::string& key, int32_t& out) {
  ASSIGN_OR_RETURN(const int64_t value, file.meta_int(key, out));
  if (value < 1 || value > kMaxExperts) {
    return invalid(
        "key " + in_quotes(key) + " is " + std::to_string(value) + "; expected 1 to " + std::to_string(kMaxExperts),
        key);
  }
  out = static_cast<int32_t>(value);
  return {};
}

Status set_float(const ModelFile& file, const std::string& key, float& out) {
  ASSIGN_OR_RETURN(const double value, file.meta_float(key, double{out}));
  out = static_cast<float>(value);
  return {};
}

// The width of shared experts together, as many as `key` gives.
Result<int64_t> shared_len(const ModelFile& file, const std::string& key, int64_t expert_len) {
  ASSIGN_OR_RETURN(const int64_t n, file.meta_int(key, 0));
  if (n >= 0 && n <= kMaxExperts) return n * std::clamp<int64_t>(expert_len, 0, int64_t{1} << 32);
  return invalid(
      "the model has " + std::to_string(n) + " shared experts in a layer; expected 0 to " + std::to_string(kMaxExperts),
      key);
}

// The first of `keys` that config.json has, else the first.
std::string one_of(const ModelFile& file, const std::string& prefix, std::initializer_list<std::string_view> keys) {
  for (const std::string_view key : keys) {
    if (file.has_meta(prefix + std::string(key))) return prefix + std::string(key);
  }
  return prefix + std::string(*keys.begin());
}

// A number, or one for each layer, all alike.
Result<int64_t> same_of_layers(const ModelFile& file, const std::string& key) {
  ASSIGN_OR_RETURN(const std::vector<int64_t> values, file.meta_ints(key));
  const bool alike = std::ranges::all_of(values, [&](int64_t v) { return v == values.front(); });
  if (!values.empty() && alike) return values.front();
  return unsupported("key " + in_quotes(key) + " gives layers different numbers of experts or widths; expected one",
                     key);
}

// Whether each layer of a folder has experts.
Result<std::vector<bool>> layers_with_experts(const ModelFile& file, const std::string& prefix, int64_t n_layers) {
  std::vector<bool> out(static_cast<size_t>(n_layers), true);
  if (const std::string key = prefix + "mlp_layer_types"; file.has_meta(key)) {
    ASSIGN_OR_RETURN(const std::vector<std::string> types, file.meta_strings(key));
    if (static_cast<int64_t>(types.size()) != n_layers) {
      return invalid("config.json gives " + std::to_string(types.size()) + " kinds of feed-forward for " +
                         std::to_string(n_layers) + " layers",
                     key);
    }
    for (size_t l = 0; l < types.size(); ++l) {
      if (types[l] != "sparse" && types[l] != "dense") {
        return unsupported("the feed-forward of layer " + std::to_string(l) + " is " + in_quotes(types[l]) +
                               "; ibid runs sparse and dense",
                           key);
      }
      out[l] = types[l] == "sparse";
    }
    return out;
  }
  ASSIGN_OR_RETURN(const int64_t n_dense,
                   file.meta_int(one_of(file, prefix, {"first_k_dense_replace", "num_dense_layers"}), 0));
  const std::string step_key = one_of(file, prefix, {"decoder_sparse_step", "moe_layer_interval"});
  ASSIGN_OR_RETURN(const int64_t step, file.meta_int(step_key, 1));
  ASSIGN_OR_RETURN(const int64_t first, file.meta_int(prefix + "moe_layer_start_index", 0));
  ASSIGN_OR_RETURN(const int64_t end, file.meta_int(prefix + "moe_layer_end_index", -1));
  const int64_t last = end < 0 ? n_layers - 1 : end;
  if (step < 1) {
    return invalid("the model has experts in every " + std::to_string(step) + "th layer; expected 1 or more", step_key);
  }
  for (int64_t l = 0; l < n_layers; ++l) {
    out[static_cast<size_t>(l)] = l >= std::max(n_dense, first) && l <= last && (l + 1) % step == 0;
  }
  if (const std::string key = prefix + "mlp_only_layers"; file.has_meta(key)) {
    ASSIGN_OR_RETURN(const std::vector<int64_t> dense, file.meta_ints(key));
    for (const int64_t l : dense) {
      if (l >= 0 && l < n_layers) out[static_cast<size_t>(l)] = false;
    }
  }
  return out;
}

}  // namespace

Status experts_from_gguf(const ModelFile& file, const Router& router, ModelConfig& config) {
  const std::string arch = config.architecture + ".";
  LayerConfig of;
  ASSIGN_OR_RETURN(of.n_experts, count_of_experts(file, arch + "expert_count"));
  ASSIGN_OR_RETURN(of.n_experts_used, file.meta_int(arch + "expert_used_count"));
  const std::string len = arch + "expert_feed_forward_length";
  ASSIGN_OR_RETURN(of.expert_len, file.meta_int(file.has_meta(len) ? len : arch + "feed_forward_length"));
  ASSIGN_OR_RETURN(const int64_t of_shared, shared_len(file, arch + "expert_shared_count", of.expert_len));
  ASSIGN_OR_RETURN(of.ffn_len, file.meta_int(arch + "expert_shared_feed_forward_length", of_shared));
  ASSIGN_OR_RETURN(const int64_t n_dense, file.meta_int(arch + "leading_dense_block_count", 0));

  Router& r = config.router = router;
  ASSIGN_OR_RETURN(r.normalises, file.meta_bool(arch + "expert_weights_norm", router.normalises));
  TRY(set_float(file, arch + "expert_weights_scale", r.scale));
  if (r.scale == 0) r.scale = 1;  // as some converters write it for none
  TRY(set_number(file, arch + "expert_group_count", r.n_groups));
  TRY(set_number(file, arch + "expert_group_used_count", r.groups_used));
  if (const std::string key = arch + "expert_gating_func"; file.has_meta(key)) {
    constexpr std::array<RouterScore, 3> kScores = {RouterScore::kSoftmax, RouterScore::kSigmoid,
                                                    RouterScore::kChosenSoftmax};
    ASSIGN_OR_RETURN(const int64_t score, file.meta_int(key));
    if (score < 1 || score > std::ssize(kScores)) {
      return unsupported("the model's router scores by function " + std::to_string(score) +
                             "; ibid knows 1 (softmax), 2 (sigmoid) and 3 (softmax of the chosen)",
                         key);
    }
    r.score = kScores[static_cast<size_t>(score - 1)];
  }
  for (size_t l = 0; l < config.layers.size(); ++l) {
    const std::string block = "blk." + std::to_string(l) + ".";
    if (static_cast<int64_t>(l) < n_dense || file.find(block + "ffn_gate_inp.weight") == nullptr) continue;
    LayerConfig& layer = config.layers[l];
    layer.n_experts = of.n_experts;
    layer.n_experts_used = of.n_experts_used;
    layer.expert_len = of.expert_len;
    layer.ffn_len = of.ffn_len;
    for (const char* bias : {"exp_probs_b.bias", "exp_probs_b"}) {
      config.router_bias |= file.find(block + bias) != nullptr;
    }
    config.shared_gate |= file.find(block + "ffn_gate_inp_shexp.weight") != nullptr;
  }
  if (config.first_with_experts() == nullptr) {
    return invalid(file.path() + " has no router (blk.N.ffn_gate_inp.weight), and its key " +
                       in_quotes(arch + "expert_count") + " gives " + std::to_string(of.n_experts) + " experts",
                   arch + "expert_count");
  }
  return {};
}

Status experts_from_folder(const ModelFile& file, const std::string& prefix, const FolderExperts& kind,
                           ModelConfig& config) {
  LayerConfig of;
  ASSIGN_OR_RETURN(
      of.n_experts,
      count_of_experts(
          file, one_of(file, prefix, {"num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts"})));
  ASSIGN_OR_RETURN(of.n_experts_used,
                   same_of_layers(file, one_of(file, prefix, {"num_experts_per_tok", "moe_k", "moe_topk"})));
  const std::string len = prefix + "moe_intermediate_size";
  ASSIGN_OR_RETURN(of.expert_len, same_of_layers(file, file.has_meta(len) ? len : prefix + "intermediate_size"));
  if (!kind.shared_count.empty()) {
    ASSIGN_OR_RETURN(of.ffn_len, shared_len(file, prefix + std::string(kind.shared_count), of.expert_len));
  }
  if (!kind.shared_len.empty()) {
    ASSIGN_OR_RETURN(of.ffn_len, file.meta_int(prefix + std::string(kind.shared_len)));
  }
  Router& r = config.router = kind.router;
  if (kind.reads_norm) {
    ASSIGN_OR_RETURN(r.normalises, file.meta_bool(prefix + "norm_topk_prob", r.normalises));
  }
  TRY(set_float(file, one_of(file, prefix, {"routed_scaling_factor", "router_scaling_factor"}), r.scale));
  TRY(set_number(file, prefix + "n_group", r.n_groups));
  TRY(set_number(file, prefix + "topk_group", r.groups_used));
  config.router_bias = kind.has_bias;
  config.shared_gate = kind.shared_gate;
  ASSIGN_OR_RETURN(const std::vector<bool> has_experts, layers_with_experts(file, prefix, config.n_layers));
  for (size_t l = 0; l < config.layers.size(); ++l) {
    if (!has_experts[l]) continue;
    LayerConfig& layer = config.layers[l];
    layer.n_experts = of.n_experts;
    layer.n_experts_used = of.n_experts_used;
    layer.expert_len = of.expert_len;
    layer.ffn_len = of.ffn_len;
  }
  return {};
}

}  // namespace ibid::arch
