#include "spec/heads/mtp_layer.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "base/quoted.h"
#include "model/config.h"

namespace ibid {
namespace {

struct Renamed {
  std::string_view theirs, ours;  // after the layer's prefix; with ".weight" or ".bias" after
};
constexpr std::array<Renamed, 4> kMimo = {{{"token_layernorm", "embed_norm"},
                                           {"hidden_layernorm", "layers.0.hidden_norm"},
                                           {"input_proj", "fc"},
                                           {"final_layernorm", "norm"}}};
constexpr std::array<Renamed, 5> kQwen = {{{"pre_fc_norm_embedding", "embed_norm"},
                                           {"pre_fc_norm_hidden", "layers.0.hidden_norm"},
                                           {"fc", "fc"},
                                           {"norm", "norm"},
                                           {"embed_tokens", "embed_tokens"}}};
constexpr std::array<Renamed, 6> kDeepSeek = {{{"enorm", "embed_norm"},
                                               {"hnorm", "layers.0.hidden_norm"},
                                               {"eh_proj", "fc"},
                                               {"shared_head.norm", "norm"},
                                               {"shared_head.head", "lm_head"},
                                               {"embed_tokens", "embed_tokens"}}};
constexpr std::array<Renamed, 17> kGguf = {{{"nextn.enorm", "embed_norm"},
                                            {"nextn.hnorm", "layers.0.hidden_norm"},
                                            {"nextn.eh_proj", "fc"},
                                            {"nextn.shared_head_norm", "norm"},
                                            {"nextn.shared_head_head", "lm_head"},
                                            {"nextn.embed_tokens", "embed_tokens"},
                                            {"attn_norm", "layers.0.input_layernorm"},
                                            {"attn_q", "layers.0.self_attn.q_proj"},
                                            {"attn_k", "layers.0.self_attn.k_proj"},
                                            {"attn_v", "layers.0.self_attn.v_proj"},
                                            {"attn_q_norm", "layers.0.self_attn.q_norm"},
                                            {"attn_k_norm", "layers.0.self_attn.k_norm"},
                                            {"attn_output", "layers.0.self_attn.o_proj"},
                                            {"ffn_norm", "layers.0.post_attention_layernorm"},
                                            {"ffn_gate", "layers.0.mlp.gate_proj"},
                                            {"ffn_up", "layers.0.mlp.up_proj"},
                                            {"ffn_down", "layers.0.mlp.down_proj"}}};

// Tensors that are not listed keep their names as the layer's; EagleHead knows or rejects them.
std::string renamed(std::string_view name, std::span<const Renamed> names) {
  for (const std::string_view end : {".weight", ".bias"}) {
    if (!name.ends_with(end)) continue;
    const std::string_view stem = name.substr(0, name.size() - end.size());
    for (const Renamed& r : names) {
      if (r.theirs == stem) return std::string(r.ours) + std::string(end);
    }
  }
  return "layers.0." + std::string(name);
}

// The location of a file's layer, and its names.
struct MtpSpelling {
  std::string prefix;
  std::span<const Renamed> names;
  bool hidden_first = false;
};

MtpSpelling spelling_of(const ModelFile& model, const ModelConfig& config) {
  const auto has = [&](std::string_view prefix) {
    return std::ranges::any_of(model.tensors(), [&](const auto& t) { return t.name.starts_with(prefix); });
  };
  const std::string mimo = "model.mtp_layers.0.", qwen = "mtp.", following = std::to_string(config.n_layers) + ".";
  if (model.container() == Container::kGguf && has("blk.")) return {"blk." + following, kGguf};
  if (has(mimo)) return {mimo, kMimo, true};
  return has(qwen) ? MtpSpelling{qwen, kQwen} : MtpSpelling{"model.layers." + following, kDeepSeek};
}

Error none_found(const ModelFile& model, const ModelConfig& config) {
  const auto other = std::ranges::find_if(model.tensors(),
                                          [](const TensorInfo& t) { return t.name.find("mtp") != std::string::npos; });
  const bool is_gguf = model.container() == Container::kGguf;
  return unsupported(
      model.path() + " brings no MTP layer along (" +
          (is_gguf ? config.architecture + ".nextn_predict_layers"
                   : "num_nextn_predict_layers or mtp_num_hidden_layers") +
          " of its configuration, and tensors of a layer after the last one)" +
          (other == model.tensors().end() ? "" : "; it has " + in_quotes(other->name) + ", which is of another kind"),
      "--spec");
}

Status must_run(const ModelConfig& config) {
  const bool has_windows =
      std::ranges::any_of(config.layers, [](const LayerConfig& layer) { return layer.window != 0; });
  if (config.shape == Shape::kLlama && !config.fused_qkv && !config.fused_gate_up && !has_windows) return {};
  return unsupported(
      "ibid runs MTP layers of llama's and qwen's shapes without windows; this model is " + config.architecture,
      "--spec");
}

}  // namespace

Result<std::shared_ptr<const ModelFile>> mtp_layer_of(const ModelFile& model) {
  ASSIGN_OR_RETURN(const ModelConfig config, read_config(model));
  const MtpSpelling spelling = spelling_of(model, config);
  ModelFile::Parts parts;
  parts.container = model.container();
  parts.path = model.path();
  for (const TensorInfo& t : model.tensors()) {
    if (config.n_mtp_layers == 0 || !t.name.starts_with(spelling.prefix)) continue;
    std::string_view name = std::string_view(t.name).substr(spelling.prefix.size());
    if (name.starts_with("layers.0.")) name.remove_prefix(9);
    if (name.starts_with("layers.")) continue;  // a further layer
    TensorInfo& to = parts.tensors.emplace_back(t);
    to.name = renamed(name, spelling.names);
  }
  if (parts.tensors.empty()) return none_found(model, config);
  TRY(must_run(config));
  parts.metadata["general.architecture"] = std::string(kMtpArchitecture);
  parts.metadata["mtp.hidden_first"] = spelling.hidden_first;
  return std::make_shared<const ModelFile>(std::move(parts));
}

}  // namespace ibid
