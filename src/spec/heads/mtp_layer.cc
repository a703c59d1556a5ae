#include "spec/heads/mtp_layer.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <string>
#include <utility>

#include "base/quoted.h"

namespace ibid {
namespace {

struct Renamed {
  std::string_view theirs, ours;  // after the layer's prefix; with ".weight" or ".bias" after
};
constexpr std::array<Renamed, 4> kMimo = {{{"token_layernorm", "embed_norm"},
                                           {"hidden_layernorm", "hidden_norm"},
                                           {"input_proj", "fc"},
                                           {"final_layernorm", "norm"}}};
constexpr std::array<Renamed, 5> kQwen = {{{"pre_fc_norm_embedding", "embed_norm"},
                                           {"pre_fc_norm_hidden", "hidden_norm"},
                                           {"fc", "fc"},
                                           {"norm", "norm"},
                                           {"embed_tokens", "embed_tokens"}}};
constexpr std::array<Renamed, 6> kDeepSeek = {{{"enorm", "embed_norm"},
                                               {"hnorm", "hidden_norm"},
                                               {"eh_proj", "fc"},
                                               {"shared_head.norm", "norm"},
                                               {"shared_head.head", "lm_head"},
                                               {"embed_tokens", "embed_tokens"}}};
constexpr std::array<Renamed, 6> kGguf = {{{"nextn.enorm", "embed_norm"},
                                           {"nextn.hnorm", "hidden_norm"},
                                           {"nextn.eh_proj", "fc"},
                                           {"nextn.shared_head_norm", "norm"},
                                           {"nextn.shared_head_head", "lm_head"},
                                           {"nextn.embed_tokens", "embed_tokens"}}};
constexpr std::string_view kBlockOfGguf = "blk.0.", kBlockOfFolder = "model.layers.0.";

// Tensors that are not listed are the layer's.
std::string renamed(std::string_view name, std::span<const Renamed> names, std::string_view block) {
  for (const std::string_view end : {".weight", ".bias"}) {
    if (!name.ends_with(end)) continue;
    const std::string_view stem = name.substr(0, name.size() - end.size());
    for (const Renamed& r : names) {
      if (r.theirs == stem) return std::string(r.ours) + std::string(end);
    }
  }
  return std::string(block) + std::string(name);
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

}  // namespace

Result<std::shared_ptr<const ModelFile>> mtp_layer_of(const ModelFile& model) {
  ASSIGN_OR_RETURN(const ModelConfig config, read_config(model));
  const MtpSpelling spelling = spelling_of(model, config);
  const std::string_view block = model.container() == Container::kGguf ? kBlockOfGguf : kBlockOfFolder;
  ModelFile::Parts parts;
  parts.container = model.container();
  parts.path = model.path();
  parts.metadata = model.metadata();
  for (const TensorInfo& t : model.tensors()) {
    if (config.n_mtp_layers == 0 || !t.name.starts_with(spelling.prefix)) continue;
    std::string_view name = std::string_view(t.name).substr(spelling.prefix.size());
    if (name.starts_with("layers.0.")) name.remove_prefix(9);
    if (name.starts_with("layers.")) continue;  // a further layer
    TensorInfo& to = parts.tensors.emplace_back(t);
    to.name = renamed(name, spelling.names, block);
  }
  if (parts.tensors.empty()) return none_found(model, config);
  parts.metadata[std::string(kMtpHiddenFirst)] = spelling.hidden_first;
  return std::make_shared<const ModelFile>(std::move(parts));
}

bool is_of_mtp_block(std::string_view name) {
  return name.starts_with(kBlockOfGguf) || name.starts_with(kBlockOfFolder);
}

std::shared_ptr<const ModelFile> mtp_block_of(const ModelFile& layer) {
  ModelFile::Parts parts;
  parts.container = layer.container();
  parts.path = layer.path() + " (its MTP layer)";
  parts.metadata = layer.metadata();
  std::ranges::copy_if(layer.tensors(), std::back_inserter(parts.tensors),
                       [](const TensorInfo& t) { return is_of_mtp_block(t.name); });
  return std::make_shared<const ModelFile>(std::move(parts));
}

Result<ModelConfig> mtp_block_config(const ModelConfig& model, const ModelFile& layer) {
  const auto attends = [](const LayerConfig& l) {
    return l.mixer == Mixer::kLatent || (l.mixer == Mixer::kAttention && !l.is_recurrent());
  };
  const auto last = std::find_if(model.layers.rbegin(), model.layers.rend(), attends);
  if (model.shape != Shape::kLlama || model.one_part_layers || model.ropes.empty() || last == model.layers.rend())
    return unsupported(layer.path() + ": ibid runs no MTP layer of " + model.architecture, "--spec");
  if (last->window != 0) {
    return unsupported(layer.path() + ": ibid runs MTP layers without windows; those of this model's layers are of " +
                           std::to_string(last->window) + " tokens",
                       "--spec");
  }
  ModelConfig out = model;
  LayerConfig own = *last;
  own.rope = 0;
  own.kv_owner = kOwnCache;
  // Of a model with experts the layer may have one feed-forward.
  const TensorInfo* gate = layer.find("blk.0.ffn_gate.weight");
  if (gate == nullptr) gate = layer.find("model.layers.0.mlp.gate_proj.weight");
  if (own.n_experts > 0 && gate != nullptr) {
    constexpr int64_t kMostWide = 65536;
    if (gate->view.rank != 2 || gate->view.dim[0] > kMostWide)
      return unsupported(layer.path() + ": an MTP layer with a feed-forward of that shape", gate->name);
    own.n_experts = own.n_experts_used = own.expert_len = 0;
    own.ffn_len = gate->view.dim[0];
  }
  out.layers = {own};
  out.n_layers = 1;
  out.n_mtp_layers = 0;
  out.ropes.resize(1);
  return out;
}

}  // namespace ibid
