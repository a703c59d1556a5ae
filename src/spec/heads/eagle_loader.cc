#include "spec/heads/eagle_loader.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/quoted.h"
#include "model/draft_layer.h"
#include "spec/heads/mtp_layer.h"

namespace ibid {
namespace {

constexpr size_t kMostTaps = 8;

// Tensor names without the prefix "model.", with "midlayer." spelled "layers.0.", and without ".weight" or ".bias".
constexpr std::string_view kLayer = "layers.0.", kFeatureNorm = "fc_norm.";
constexpr auto kMatrices =
    std::to_array<std::string_view>({"fc", "layers.0.self_attn.q_proj", "layers.0.self_attn.k_proj",
                                     "layers.0.self_attn.v_proj", "layers.0.self_attn.o_proj", "layers.0.mlp.gate_proj",
                                     "layers.0.mlp.up_proj", "layers.0.mlp.down_proj", "lm_head", "embed_tokens"});
constexpr auto kVectors = std::to_array<std::string_view>(
    {"layers.0.input_layernorm", "layers.0.hidden_norm", "layers.0.post_attention_layernorm", "norm", "input_norm",
     "embed_norm", "hidden_norm", "layers.0.self_attn.q_norm", "layers.0.self_attn.k_norm", "d2t", "t2d"});

// For error messages.
std::string in_layer(std::string_view name) {
  return std::string(name.starts_with(kLayer) ? name.substr(kLayer.size()) : name);
}

// For I8, I32 and I64.
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

std::string EagleHead::Loader::name_of(const TensorInfo& t) const {
  std::string name = t.name;
  const bool is_bias = name.ends_with(".bias");
  if (is_bias || name.ends_with(".weight")) name.resize(name.size() - (is_bias ? 5 : 7));
  if (is_eagle3_gguf(file_)) return eagle3_folder_name(name);
  if (name.starts_with("model.")) name.erase(0, 6);
  if (name.starts_with("midlayer.")) name.replace(0, 9, kLayer);
  return name;
}

Status EagleHead::Loader::name_tensors() {
  for (const TensorInfo& t : file_.tensors()) {
    // Values that the configuration has anyway; values that read_draft_layer() reads.
    if (t.name.ends_with(".rotary_emb.inv_freq") || (is_eagle3_gguf(file_) && t.name == "rope_freqs.weight")) continue;
    const std::string name = name_of(t);
    if (is_mtp() && is_of_mtp_block(t.name)) continue;
    const bool is_bias = t.name.ends_with(".bias"), is_matrix = std::ranges::count(kMatrices, name) > 0;
    const bool is_vector = std::ranges::count(kVectors, name) > 0 || name.starts_with(kFeatureNorm);
    if (!is_matrix && (is_bias || !is_vector)) {
      return unsupported(where() + "tensor " + in_quotes(t.name) + " is of no EAGLE head or MTP layer that ibid runs",
                         t.name);
    }
    HeadMatrix& place = tensors_[name];
    const TensorInfo*& to = is_bias ? place.bias : place.weight;
    if (to != nullptr)
      return invalid(where() + "tensors " + in_quotes(to->name) + " and " + in_quotes(t.name) + " are one", t.name);
    to = &t;
  }
  return {};
}

const HeadMatrix& EagleHead::Loader::at(std::string_view name) const {
  static constexpr HeadMatrix kNone;
  const auto found = tensors_.find(name);
  return found == tensors_.end() ? kNone : found->second;
}

// ---- configuration -------------------------------------------------------------------------------------------------

Result<bool> EagleHead::Loader::flag(const std::string& key, bool otherwise) const {
  if (is_eagle3_gguf(file_)) return file_.meta_bool("eagle3." + key, otherwise);
  ASSIGN_OR_RETURN(const bool outer, file_.meta_bool(key, otherwise));
  return file_.meta_bool("eagle_config." + key, outer);
}

Status EagleHead::Loader::read_mtp_config(const EagleSizes& sizes) {
  ASSIGN_OR_RETURN(form_.layer, mtp_block_config(target_.config(), file_));
  form_.layer.trained_context_len = std::max<int64_t>(form_.layer.trained_context_len, sizes.context_len);
  form_.state_is_normed = true;
  ASSIGN_OR_RETURN(form_.hidden_first, file_.meta_bool(std::string(kMtpHiddenFirst), false));
  if (!has("d2t") && !has("t2d")) return {};
  return unsupported(where() + "an MTP layer has no outputs of a part of the vocabulary", "d2t");
}

Result<std::unique_ptr<Model>> EagleHead::Loader::load_layer(const VocabularyWeights& ends, const EagleSizes& sizes,
                                                             bool sized_only) const {
  if (!is_mtp()) return std::unique_ptr<Model>();
  const ModelOptions options = {.context_len = sizes.context_len,
                                .step_tokens = sizes.n_tokens,
                                .max_rows = sizes.most_rows(),
                                .max_sequences = sizes.n_sequences,
                                .sized_only = sized_only};
  return ibid::load_layer(mtp_block_of(file_), form_.layer, ends, options, stream_);
}

Status EagleHead::Loader::read_config(const EagleSizes& sizes) {
  if (is_mtp()) return read_mtp_config(sizes);
  form_.kind = has("layers.0.hidden_norm") ? EagleForm::Kind::kThird : EagleForm::Kind::kFirst;
  ASSIGN_OR_RETURN(form_.layer, read_draft_layer(file_));
  // Speculators leaves out its default values.
  const bool is_theirs = file_.has_meta(std::string(kSpeculatorsLayer) + "hidden_size");
  ASSIGN_OR_RETURN(form_.residual_is_normed, flag("norm_before_residual", is_theirs && is_third()));
  ASSIGN_OR_RETURN(form_.state_is_normed, flag("norm_output", false));
  if (!is_third() && (form_.residual_is_normed || form_.state_is_normed))
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

// The papers' programs name the layer whose input is meant, HiddenStates the layer whose output is meant.
Status EagleHead::Loader::find_taps() {
  const int64_t n_layers = target_.config().n_layers;
  if (!is_third()) {
    form_.tap_layers = {static_cast<int32_t>(n_layers)};
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
  for (const int64_t layer : layers) form_.tap_layers.push_back(static_cast<int32_t>(layer) - 1);
  return {};
}

// Norms of the target's hidden states, before fc: one over their concatenation, or one per layer.
Status EagleHead::Loader::find_feature_norms() {
  ASSIGN_OR_RETURN(const bool is_one, flag("norm_before_fc", false));
  ASSIGN_OR_RETURN(const bool is_each, flag("fc_norm", false));
  if (is_one && is_each)
    return unsupported(where() + "norm_before_fc and fc_norm are both set; ibid does one of them", "fc_norm");
  if ((is_one || is_each) && !is_third())
    return invalid(where() + "its configuration is of EAGLE-3 but there is no hidden_norm.weight");
  TRY(check_vector("input_norm", is_one, feature_len()));
  if (is_one) feature_norms_ = {"input_norm"};
  const size_t n = is_each ? form_.tap_layers.size() : 0;
  for (size_t i = 0; i < n; ++i) {
    feature_norms_.push_back(std::string(kFeatureNorm) + std::to_string(i));
    TRY(check_vector(feature_norms_.back(), true, target_width()));
  }
  const auto n_there = std::ranges::count_if(tensors_, [](const auto& t) { return t.first.starts_with(kFeatureNorm); });
  if (n_there == static_cast<int64_t>(n)) return {};
  return invalid(
      where() + "has " + std::to_string(n_there) + " fc_norm tensors where " + std::to_string(n) + " are configured",
      "fc_norm");
}

// Token ids of the outputs. In a folder, d2t holds the distance from the output's index to the token's id; other
// programs write the ids themselves. t2d distinguishes the two; without it, values are ids if they ascend by more than
// one per step and would lie outside the vocabulary as distances. llama.cpp's converter writes ids and no t2d: values
// that ascend in every step are ids, since as distances each would skip a token.
Status EagleHead::Loader::find_ids() {
  const int64_t n_vocabulary = target_.config().vocab_size;
  if (!has("d2t")) return {};
  const TensorView& d2t = at("d2t").weight->view;
  if (d2t.rank != 1 || (d2t.dtype != DType::kI64 && d2t.dtype != DType::kI32) || d2t.row_len() > n_vocabulary)
    return invalid(where() + "d2t is no list of whole numbers, one for each output", "d2t");
  const std::vector<int64_t> values = whole_numbers(d2t);
  std::vector<int64_t> ids = values;
  const auto n = static_cast<int64_t>(values.size());
  for (int64_t i = 0; i < n; ++i) {
    const int64_t distance = values[static_cast<size_t>(i)];
    if (distance < -n_vocabulary || distance > n_vocabulary)
      return invalid(where() + "d2t leads out of the model's vocabulary", "d2t");
    ids[static_cast<size_t>(i)] = i + distance;
  }
  const bool are_ids = is_eagle3_gguf(file_) && ascend(values, n_vocabulary);
  const bool fits = !are_ids && ascend(ids, n_vocabulary) && check_members(ids).ok();
  if (!fits && ascend(values, n_vocabulary)) ids = values;
  if (!ascend(ids, n_vocabulary))
    return invalid(where() + "d2t leads to no ascending ids of the model's vocabulary", "d2t");
  TRY(check_members(ids));
  for (const int64_t id : ids) form_.ids.push_back(TokenId{static_cast<int32_t>(id)});
  return {};
}

Status EagleHead::Loader::check_members(const std::vector<int64_t>& ids) const {
  if (!has("t2d")) return {};
  const TensorView& t2d = at("t2d").weight->view;
  if (t2d.rank != 1 || t2d.dtype != DType::kI8 || t2d.row_len() < target_.config().vocab_size)
    return invalid(where() + "t2d is no list of yes and no, one for each token of the model", "t2d");
  const auto* is_member = t2d.row_as<const int8_t>(0);
  const auto n_members = t2d.row_len() - std::count(is_member, is_member + t2d.row_len(), 0);
  if (n_members != std::ssize(ids) || !std::ranges::all_of(ids, [&](int64_t id) { return is_member[id] != 0; }))
    return invalid(where() + "d2t and t2d do not agree", "t2d");
  return {};
}

// ---- shapes --------------------------------------------------------------------------------------------------------

Status EagleHead::Loader::check_matrix(std::string_view name, int64_t n_outputs, int64_t n_inputs) const {
  if (has(name)) return at(name).check_shape(stream_, where(), n_outputs, n_inputs);
  return invalid(where() + "there is no " + in_layer(name) + ".weight, " + std::to_string(n_outputs) + " x " +
                 std::to_string(n_inputs));
}

Status EagleHead::Loader::check_vector(std::string_view name, bool is_there, int64_t len) const {
  if (has(name) != is_there) {
    const std::string none = is_mtp()     ? "an MTP layer of this model has no "
                             : is_third() ? "an EAGLE-3 head has no "
                                          : "an EAGLE-1 head has no ";
    return invalid(where() + (is_there ? "there is no " : none) + in_layer(name) + ".weight", in_layer(name));
  }
  if (!is_there) return {};
  const TensorInfo& v = *at(name).weight;
  if (v.view.rank == 1 && v.view.dim[0] == len && is_float(v)) return {};
  return invalid(where() + "tensor " + in_quotes(v.name) + " is not of " + std::to_string(len), v.name);
}

Status EagleHead::Loader::check_biases() const {
  TRY(at("lm_head").check_bias(where()));
  const HeadMatrix looked_up = {nullptr, at("embed_tokens").bias};  // rows without a bias
  return looked_up.check_bias(where());
}

// Of a decoder layer that is not the model's own.
Status EagleHead::Loader::check_layer() const {
  const ModelConfig& c = form_.layer;
  const LayerConfig& layer = c.layers.front();
  const int64_t read = is_third() ? 2 * c.width : c.width;
  TRY(check_matrix("layers.0.self_attn.q_proj", layer.q_len(), read));
  TRY(check_matrix("layers.0.self_attn.k_proj", layer.k_len(), read));
  TRY(check_matrix("layers.0.self_attn.v_proj", layer.v_len(), read));
  TRY(check_matrix("layers.0.self_attn.o_proj", c.width, layer.attention_len()));
  TRY(check_matrix("layers.0.mlp.gate_proj", layer.ffn_len, c.width));
  TRY(check_matrix("layers.0.mlp.up_proj", layer.ffn_len, c.width));
  TRY(check_matrix("layers.0.mlp.down_proj", c.width, layer.ffn_len));
  TRY(check_vector("layers.0.post_attention_layernorm", true, c.width));
  TRY(check_vector("layers.0.input_layernorm", is_third(), c.width));
  TRY(check_vector("layers.0.hidden_norm", is_third(), c.width));
  TRY(check_vector("layers.0.self_attn.q_norm", false, layer.key_len));
  return check_vector("layers.0.self_attn.k_norm", false, layer.key_len);
}

Status EagleHead::Loader::check_shapes() {
  const ModelConfig& c = form_.layer;
  const int64_t n_vocabulary = target_.config().vocab_size;
  TRY(check_matrix("fc", c.width, is_third() ? feature_len() : 2 * c.width));
  if (!is_mtp()) TRY(check_layer());
  TRY(check_biases());
  TRY(check_vector("norm", is_third() || is_mtp(), c.width));
  TRY(check_vector("hidden_norm", is_mtp(), c.width));
  TRY(check_vector("embed_norm", is_mtp(), c.width));
  const bool is_targets_width = c.width == target_width();
  if (!is_third() && !is_targets_width)
    return invalid(where() + "there is no head of the model's width, " + std::to_string(target_width()));
  if (has("embed_tokens") || !is_targets_width) TRY(check_matrix("embed_tokens", n_vocabulary, c.width));
  if (has("lm_head") || !is_targets_width || !form_.ids.empty()) TRY(check_matrix("lm_head", n_outputs(), c.width));
  return kv_supported({.geometry = geometry(), .dtype = DType::kF16});
}

// The embedding and the output matrix determine the scale and the soft cap.
void EagleHead::Loader::use_vocabulary() {
  form_.layer.embedding_scale = has("embed_tokens") ? 1.0F : target_.config().embedding_scale;
  form_.layer.logit_soft_cap = has("lm_head") ? 0.0F : target_.config().logit_soft_cap;
}

KvGeometry EagleHead::Loader::geometry() const { return kv_geometry(form_.layer, 0); }

Status EagleHead::Loader::find(const EagleSizes& sizes) {
  if (target_.vocabulary() == nullptr)
    return invalid("an encoder has no next token that a head could predict", "--spec");
  if (file_.has_meta(std::string(kMtpHiddenFirst))) form_.kind = EagleForm::Kind::kMtp;
  TRY(name_tensors());
  TRY(read_config(sizes));
  TRY(find_taps());
  TRY(find_feature_norms());
  TRY(find_ids());
  use_vocabulary();
  TRY(check_shapes());
  ASSIGN_OR_RETURN(sized_layer_, load_layer(*target_.vocabulary(), sizes, /*sized_only=*/true));
  return {};
}

}  // namespace ibid
