#include "spec/eagle_loader.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/planted.h"
#include "base/quoted.h"
#include "model/blocks.h"
#include "model/draft_layer.h"
#include "spec/mtp_layer.h"

namespace ibid {
namespace {

constexpr size_t kMostTaps = 8;

// Of I8, I32 and I64.
std::vector<int64_t> whole_numbers(const TensorView& x) {
  std::vector<int64_t> out;
  for (int64_t i = 0; i < x.row_len(); ++i) {
    out.push_back(x.dtype == DType::kI64   ? x.row_as<const int64_t>(0)[i]
                  : x.dtype == DType::kI32 ? x.row_as<const int32_t>(0)[i]
                                           : x.row_as<const int8_t>(0)[i]);
  }
  return out;
}

bool ascend(const std::vector<int64_t>& ids, int64_t end) {
  return std::ranges::is_sorted(ids, std::ranges::less_equal()) && ids.front() >= 0 && ids.back() < end;
}

}  // namespace

// ---- names ---------------------------------------------------------------------------------------------------------

// A tensor's name without "model." before it, "midlayer." spelled "layers.0.", and ".weight" or ".bias" behind it.
struct EagleHead::Loader::Place {
  std::string_view name;
  HeadMatrix Loader::*matrix = nullptr;
  const TensorInfo* Loader::*vector = nullptr;
};

std::vector<EagleHead::Loader::Place> EagleHead::Loader::places() {
  return {{"fc", &Loader::fc_},
          {"layers.0.self_attn.q_proj", &Loader::q_},
          {"layers.0.self_attn.k_proj", &Loader::k_},
          {"layers.0.self_attn.v_proj", &Loader::v_},
          {"layers.0.self_attn.o_proj", &Loader::o_},
          {"layers.0.mlp.gate_proj", &Loader::gate_},
          {"layers.0.mlp.up_proj", &Loader::up_},
          {"layers.0.mlp.down_proj", &Loader::down_},
          {"lm_head", &Loader::output_},
          {"embed_tokens", &Loader::embedding_},
          {"layers.0.input_layernorm", nullptr, &Loader::input_norm_},
          {"layers.0.hidden_norm", nullptr, &Loader::hidden_norm_},
          {"layers.0.post_attention_layernorm", nullptr, &Loader::ffn_norm_},
          {"norm", nullptr, &Loader::norm_},
          {"input_norm", nullptr, &Loader::all_features_norm_},
          {"embed_norm", nullptr, &Loader::embed_norm_},
          {"layers.0.self_attn.q_norm", nullptr, &Loader::q_norm_},
          {"layers.0.self_attn.k_norm", nullptr, &Loader::k_norm_},
          {"d2t", nullptr, &Loader::d2t_},
          {"t2d", nullptr, &Loader::t2d_}};
}

// Without ".weight" or ".bias".
std::string EagleHead::Loader::folder_name(const TensorInfo& t) const {
  std::string name = t.name;
  const bool is_bias = name.ends_with(".bias");
  if (is_bias || name.ends_with(".weight")) name.resize(name.size() - (is_bias ? 5 : 7));
  if (is_eagle3_gguf(file_)) return eagle3_folder_name(name);
  if (name.starts_with("model.")) name.erase(0, 6);
  if (name.starts_with("midlayer.")) name.replace(0, 9, "layers.0.");
  return name;
}

Status EagleHead::Loader::name_tensors() {
  const std::vector<Place> all = places();
  for (const TensorInfo& t : file_.tensors()) {
    // What the configuration says anyway; what read_draft_layer() reads.
    if (t.name.ends_with(".rotary_emb.inv_freq") || (is_eagle3_gguf(file_) && t.name == "rope_freqs.weight")) continue;
    const std::string name = folder_name(t);
    const bool is_bias = t.name.ends_with(".bias");
    if (!is_bias && name.starts_with("fc_norm.")) {
      const auto [at, is_new] = each_feature_norm_.emplace(name, &t);
      if (is_new) continue;
      return invalid(where() + "tensors " + in_quotes(at->second->name) + " and " + in_quotes(t.name) + " are one",
                     t.name);
    }
    const auto place = std::ranges::find(all, name, [](const Place& p) { return std::string(p.name); });
    if (place == all.end() || (is_bias && place->matrix == nullptr)) {
      return unsupported(where() + "tensor " + in_quotes(t.name) + " is of no EAGLE head or MTP layer that ibid runs",
                         t.name);
    }
    const TensorInfo*& to = place->vector != nullptr ? this->*place->vector
                            : is_bias                ? (this->*place->matrix).bias
                                                     : (this->*place->matrix).weight;
    if (to != nullptr)
      return invalid(where() + "tensors " + in_quotes(to->name) + " and " + in_quotes(t.name) + " are one", t.name);
    to = &t;
  }
  return {};
}

// ---- configuration -------------------------------------------------------------------------------------------------

Result<bool> EagleHead::Loader::flag(const std::string& key, bool otherwise) const {
  if (is_eagle3_gguf(file_)) return file_.meta_bool("eagle3." + key, otherwise);
  ASSIGN_OR_RETURN(const bool outer, file_.meta_bool(key, otherwise));
  return file_.meta_bool("eagle_config." + key, outer);
}

// One layer of the target's shape; the target's configuration was checked when it was read.
Status EagleHead::Loader::read_mtp_config() {
  config_ = target_.config();
  if (config_.shape != Shape::kLlama || config_.fused_qkv || config_.fused_gate_up || config_.ropes.empty())
    return unsupported(where() + "ibid runs no MTP layer of " + config_.architecture, "--spec");
  config_.n_layers = 1;
  config_.layers = {LayerConfig{}};
  state_is_normed_ = true;
  ASSIGN_OR_RETURN(hidden_first_, file_.meta_bool("mtp.hidden_first", false));
  if (d2t_ == nullptr && t2d_ == nullptr) return {};
  return unsupported(where() + "an MTP layer has no outputs of a part of the vocabulary", "d2t");
}

Status EagleHead::Loader::read_config() {
  ASSIGN_OR_RETURN(const std::string architecture, file_.meta_string("general.architecture", ""));
  is_mtp_ = architecture == kMtpArchitecture;
  if (is_mtp_) return read_mtp_config();
  ASSIGN_OR_RETURN(config_, read_draft_layer(file_));
  is_third_ = hidden_norm_ != nullptr;
  // Speculators leave out what is their default.
  const bool is_theirs = file_.has_meta(std::string(kSpeculatorsLayer) + "hidden_size");
  ASSIGN_OR_RETURN(residual_is_normed_, flag("norm_before_residual", is_theirs && is_third_));
  ASSIGN_OR_RETURN(state_is_normed_, flag("norm_output", false));
  if (!is_third_ && (residual_is_normed_ || state_is_normed_))
    return invalid(where() + "its configuration is of EAGLE-3 but there is no hidden_norm.weight");
  const std::string width_key = is_eagle3_gguf(file_) ? "eagle3.target_hidden_size" : "target_hidden_size";
  ASSIGN_OR_RETURN(const int64_t target_width, file_.meta_int(width_key, this->target_width()));
  if (target_width != this->target_width()) {
    return invalid(where() + "the head is of a model of width " + std::to_string(target_width) + "; this one's is " +
                       std::to_string(this->target_width()),
                   width_key);
  }
  return {};
}

// The papers' programs name a layer whose input is meant, HiddenStates one whose output is.
Status EagleHead::Loader::find_taps() {
  const int64_t n_layers = target_.config().n_layers;
  if (!is_third_) {
    tap_layers_ = {static_cast<int32_t>(n_layers)};
    return {};
  }
  std::string key = "eagle_aux_hidden_state_layer_ids";
  for (const char* other :
       {"eagle_config.eagle_aux_hidden_state_layer_ids", "eagle3.target_layers", "eagle3.extract_layers"})
    if (file_.has_meta(other)) key = other;
  std::vector<int64_t> layers = {2, n_layers / 2, n_layers - 3};
  if (file_.has_meta(key)) {
    ASSIGN_OR_RETURN(layers, file_.meta_ints(key));
  }
  if (layers.empty() || layers.size() > kMostTaps || !std::ranges::is_sorted(layers, std::ranges::less_equal()) ||
      layers.front() < 1 || layers.back() > n_layers) {
    return invalid(where() + "the layers that the head reads are no ascending ones from 1 to the model's " +
                       std::to_string(n_layers),
                   key);
  }
  for (const int64_t layer : layers)
    tap_layers_.push_back(static_cast<int32_t>(layer) - !PLANTED("an_eagle_taps_the_layer_behind"));
  return {};
}

// Of what the target's layers made, before fc: one over all of it side by side, or one for each layer.
Status EagleHead::Loader::find_feature_norms() {
  ASSIGN_OR_RETURN(const bool is_one, flag("norm_before_fc", false));
  ASSIGN_OR_RETURN(const bool is_each, flag("fc_norm", false));
  if (is_one && is_each)
    return unsupported(where() + "norm_before_fc and fc_norm are both set; ibid does one of them", "fc_norm");
  if ((is_one || is_each) && !is_third_)
    return invalid(where() + "its configuration is of EAGLE-3 but there is no hidden_norm.weight");
  TRY(check_vector(all_features_norm_, "input_norm", is_one, feature_len()));
  if (is_one) feature_norms_ = {all_features_norm_};
  const size_t n = is_each ? tap_layers_.size() : 0;
  for (size_t i = 0; i < n; ++i) {
    const std::string name = "fc_norm." + std::to_string(i);
    const auto found = each_feature_norm_.find(name);
    const TensorInfo* norm = found == each_feature_norm_.end() ? nullptr : found->second;
    TRY(check_vector(norm, name, true, target_width()));
    feature_norms_.push_back(norm);
  }
  if (each_feature_norm_.size() == n) return {};
  return invalid(where() + "has " + std::to_string(each_feature_norm_.size()) + " fc_norm tensors where " +
                     std::to_string(n) + " are told",
                 "fc_norm");
}

// What the outputs stand for. In a folder d2t says how far behind the output's own number the token's id lies; other
// programs write the ids themselves. t2d tells the two apart; without it ids are what ascends by more than one a step
// and would lie outside the vocabulary were they distances. llama.cpp's converter writes ids and no t2d: there what
// ascends with every step is ids, for as distances it would leave a token out behind each.
Status EagleHead::Loader::find_ids() {
  const int64_t n_vocabulary = target_.config().vocab_size;
  if (d2t_ == nullptr) return {};
  const TensorView& d2t = d2t_->view;
  if (d2t.rank != 1 || (d2t.dtype != DType::kI64 && d2t.dtype != DType::kI32) || d2t.row_len() > n_vocabulary)
    return invalid(where() + "d2t is no list of whole numbers, one for each output", "d2t");
  const std::vector<int64_t> said = whole_numbers(d2t);
  std::vector<int64_t> ids = said;
  const auto n = static_cast<int64_t>(said.size());
  for (int64_t i = 0; i < n; ++i) {
    const int64_t distance = said[static_cast<size_t>(i)];
    if (distance < -n_vocabulary || distance > n_vocabulary)
      return invalid(where() + "d2t leads out of the model's vocabulary", "d2t");
    ids[static_cast<size_t>(i)] = i + distance * (1 + PLANTED("an_eagle_adds_d_to_t_twice"));
  }
  const bool are_ids = is_eagle3_gguf(file_) && ascend(said, n_vocabulary);
  const bool fits = !are_ids && ascend(ids, n_vocabulary) && check_members(ids).ok();
  if (!fits && ascend(said, n_vocabulary)) ids = said;
  if (!ascend(ids, n_vocabulary))
    return invalid(where() + "d2t leads to no ascending ids of the model's vocabulary", "d2t");
  TRY(check_members(ids));
  for (const int64_t id : ids) ids_.push_back(TokenId{static_cast<int32_t>(id)});
  return {};
}

Status EagleHead::Loader::check_members(const std::vector<int64_t>& ids) const {
  if (t2d_ == nullptr) return {};
  const TensorView& t2d = t2d_->view;
  if (t2d.rank != 1 || t2d.dtype != DType::kI8 || t2d.row_len() < target_.config().vocab_size)
    return invalid(where() + "t2d is no list of yes and no, one for each token of the model", "t2d");
  const auto* is_member = t2d.row_as<const int8_t>(0);
  const auto n_members = t2d.row_len() - std::count(is_member, is_member + t2d.row_len(), 0);
  if (n_members != std::ssize(ids) || !std::ranges::all_of(ids, [&](int64_t id) { return is_member[id] != 0; }))
    return invalid(where() + "d2t and t2d do not say the same", "t2d");
  return {};
}

// ---- shapes --------------------------------------------------------------------------------------------------------

Status EagleHead::Loader::check_matrix(const HeadMatrix& m, std::string_view name, int64_t n_outputs,
                                       int64_t n_inputs) const {
  if (m.weight == nullptr) {
    return invalid(where() + "there is no " + std::string(name) + ".weight, " + std::to_string(n_outputs) + " x " +
                   std::to_string(n_inputs));
  }
  return m.check_shape(stream_, where(), n_outputs, n_inputs);
}

Status EagleHead::Loader::check_vector(const TensorInfo* v, std::string_view name, bool is_there, int64_t len) const {
  if ((v != nullptr) != is_there) {
    const std::string none = is_mtp_     ? "an MTP layer of this model has no "
                             : is_third_ ? "an EAGLE-3 head has no "
                                         : "an EAGLE-1 head has no ";
    return invalid(where() + (is_there ? "there is no " : none) + std::string(name) + ".weight", std::string(name));
  }
  if (v == nullptr || (v->view.rank == 1 && v->view.dim[0] == len && is_float(*v))) return {};
  return invalid(where() + "tensor " + in_quotes(v->name) + " is not of " + std::to_string(len), v->name);
}

// An MTP layer has those of its model's layers.
Status EagleHead::Loader::check_biases() const {
  TRY(output_.check_bias(where()));
  const HeadMatrix looked_up = {nullptr, embedding_.bias};  // rows, to which nothing is added
  TRY(looked_up.check_bias(where()));
  for (const HeadMatrix* m : {&q_, &k_, &v_}) {
    if (!is_mtp_ || (m->bias != nullptr) == config_.qkv_bias) continue;
    return invalid(where() + "tensor " + in_quotes(m->weight->name) + (config_.qkv_bias ? " has no" : " has a") +
                       " bias, other than the model's layers",
                   m->weight->name);
  }
  return {};
}

Status EagleHead::Loader::check_shapes() {
  const ModelConfig& c = config_;
  const int64_t n_vocabulary = target_.config().vocab_size, read = is_third_ ? 2 * c.width : c.width;
  TRY(check_matrix(fc_, "fc", c.width, is_third_ ? feature_len() : 2 * c.width));
  TRY(check_matrix(q_, "self_attn.q_proj", c.q_len(), read));
  TRY(check_matrix(k_, "self_attn.k_proj", c.kv_len(), read));
  TRY(check_matrix(v_, "self_attn.v_proj", c.kv_len(), read));
  TRY(check_matrix(o_, "self_attn.o_proj", c.width, c.q_len()));
  TRY(check_matrix(gate_, "mlp.gate_proj", c.ffn_len, c.width));
  TRY(check_matrix(up_, "mlp.up_proj", c.ffn_len, c.width));
  TRY(check_matrix(down_, "mlp.down_proj", c.width, c.ffn_len));
  TRY(check_biases());
  const bool has_norms = is_third_ || is_mtp_;
  TRY(check_vector(ffn_norm_, "post_attention_layernorm", true, c.width));
  TRY(check_vector(input_norm_, "input_layernorm", has_norms, c.width));
  TRY(check_vector(norm_, "norm", has_norms, c.width));
  TRY(check_vector(hidden_norm_, "hidden_norm", has_norms, c.width));
  TRY(check_vector(embed_norm_, "embed_norm", is_mtp_, c.width));
  TRY(check_vector(q_norm_, "self_attn.q_norm", is_mtp_ && c.qk_norm, c.head_len));
  TRY(check_vector(k_norm_, "self_attn.k_norm", is_mtp_ && c.qk_norm, c.head_len));
  const bool is_targets_width = c.width == target_width();
  if (!is_third_ && !is_targets_width) return check_matrix({}, "a head of the model's width: fc", target_width(), 0);
  if (embedding_.weight != nullptr || !is_targets_width)
    TRY(check_matrix(embedding_, "embed_tokens", n_vocabulary, c.width));
  if (output_.weight != nullptr || !is_targets_width || !ids_.empty())
    TRY(check_matrix(output_, "lm_head", n_outputs(), c.width));
  return kv_supported({.geometry = geometry(), .dtype = DType::kF16});
}

KvGeometry EagleHead::Loader::geometry() const {
  const auto head_len = static_cast<int32_t>(config_.head_len);
  return {.n_kv_heads = static_cast<int32_t>(config_.n_kv_heads), .key_len = head_len, .value_len = head_len};
}

Status EagleHead::Loader::find() {
  if (target_.vocabulary() == nullptr) return invalid("an encoder has no next token that a head could say", "--spec");
  TRY(name_tensors());
  TRY(read_config());
  TRY(find_taps());
  TRY(find_feature_norms());
  TRY(find_ids());
  return check_shapes();
}

}  // namespace ibid
