// Memory of an EagleHead: its weights, the rows of a pass, keys and values.
#include <algorithm>
#include <numeric>
#include <utility>

#include "kernels/ops.h"
#include "spec/heads/eagle_loader.h"
#include "tensor/dequantise.h"

namespace ibid {
namespace {

TensorView as_floats(const TensorInfo& t, float offset, std::vector<std::unique_ptr<float[]>>& copies) {
  const int64_t n = t.view.row_len();
  copies.push_back(std::make_unique<float[]>(static_cast<size_t>(n)));
  dequantise_row(t.view.dtype, t.view.data, copies.back().get(), n);
  for (int64_t i = 0; i < n && offset != 0; ++i) copies.back()[static_cast<size_t>(i)] += offset;
  return {copies.back().get(), DType::kF32, {n}};
}

}  // namespace

int64_t EagleHead::Loader::weight_bytes() const {
  int64_t bytes = 0;
  for (const auto& [name, m] : tensors_) {
    if (m.weight == nullptr || m.weight->view.rank != 2) continue;
    const auto raw = static_cast<int64_t>(m.weight->bytes());
    bytes += name == "embed_tokens" ? raw : std::max(prepared_bytes(stream_, m.weight->view), raw);
  }
  if (sized_layer_ == nullptr) return bytes;
  const MemoryUse& layer = sized_layer_->memory();
  return bytes + layer.mapped_bytes + layer.repacked_bytes + layer.scratch_bytes;
}

void EagleHead::Loader::lay_out(ScratchLayout& layout, const EagleSizes& sizes, Scratch& scratch, Rows& rows) const {
  const int64_t C = form_.layer.width, T = sizes.n_tokens, R = sizes.most_rows();
  // An MTP layer has intermediates of its own.
  if (is_mtp()) {
    scratch.x = layout.take(T, C);
    scratch.x_rows = scratch.attention_rows = layout.take(R, 1);
  } else {
    scratch.lay_out(layout, form_.layer, T, R);
  }
  rows.inputs = layout.take(T, 2 * C);
  rows.states = form_.kind == EagleForm::Kind::kFirst ? rows.inputs.columns(C, C) : scratch.x;
  rows.features = is_third() ? layout.take(T, feature_len()) : rows.states;
  rows.kept = layout.take(sizes.n_kept, feature_len());
  rows.logits = layout.take(R, n_outputs());
  rows.taps.clear();
  for (size_t i = 0; i < form_.tap_layers.size(); ++i)
    rows.taps.push_back(layout.take(sizes.step_tokens, target_width()));
}

size_t EagleHead::Loader::workspace_bytes(const EagleSizes& sizes) const {
  const LayerConfig& layer = form_.layer.layers.front();
  size_t bytes = ops::paged_attention_workspace_bytes(sizes.n_tokens, static_cast<int32_t>(layer.n_heads),
                                                      static_cast<int32_t>(layer.value_len), sizes.context_len);
  for (const int64_t n_inputs : {2 * form_.layer.width, feature_len(), layer.attention_len(), layer.ffn_len})
    bytes = std::max(bytes, ops::linear_workspace_bytes(sizes.n_tokens, n_inputs));
  return bytes;
}

std::vector<KvLayout> EagleHead::Loader::kv_layouts(const EagleSizes& sizes) const {
  const KvGeometry g = geometry();
  return ibid::kv_layouts({&g, 1}, sizes.kv_dtype, sizes.block_len);
}

EagleHead::Weights EagleHead::Loader::load() const {
  Weights out;
  const auto norm = [&](std::string_view name) {
    return has(name) ? as_floats(*at(name).weight, is_mtp() ? target_.config().norm_offset : 0, out.copies)
                     : TensorView();
  };
  const auto product = [&](std::string_view name) {
    const HeadMatrix& m = at(name);
    Linear linear;
    linear.weight = prepare_weight(stream_, m.weight->view);
    if (m.bias != nullptr) linear.bias = as_floats(*m.bias, 0, out.copies);
    return linear;
  };
  for (const std::string& name : feature_norms_) out.feature_norms.push_back(norm(name));
  out.fc = product("fc");
  out.token_norm = norm(is_mtp() ? "embed_norm" : "layers.0.input_layernorm");
  out.state_norm = norm(is_mtp() ? "hidden_norm" : "layers.0.hidden_norm");
  if (!is_mtp()) {
    out.attention.qkv.all = {{&Scratch::q, product("layers.0.self_attn.q_proj")},
                             {&Scratch::k, product("layers.0.self_attn.k_proj")},
                             {&Scratch::v, product("layers.0.self_attn.v_proj")}};
    out.attention.output = product("layers.0.self_attn.o_proj");
    out.ffn_norm = norm("layers.0.post_attention_layernorm");
    out.ffn.gate_up.all = {{&Scratch::gate, product("layers.0.mlp.gate_proj")},
                           {&Scratch::up, product("layers.0.mlp.up_proj")}};
    out.ffn.down = product("layers.0.mlp.down_proj");
  }
  VocabularyWeights& vocabulary = out.vocabulary;
  vocabulary = *target_.vocabulary();
  vocabulary.output_norm = norm("norm");
  if (has("lm_head")) vocabulary.output = product("lm_head");
  if (!has("embed_tokens")) return out;
  // Rows are read in place.
  const TensorView& view = at("embed_tokens").weight->view;
  vocabulary.embedding = {.dtype = view.dtype, .n_outputs = view.dim[0], .n_inputs = view.dim[1], .raw = view};
  return out;
}

// ---- EagleHead -----------------------------------------------------------------------------------------------------

Result<int64_t> EagleHead::block_bytes(const ModelFile& file, const Model& target, Stream& stream,
                                       const EagleSizes& sizes) {
  Loader loader(file, target, stream);
  TRY(loader.find(sizes));
  return kv_block_bytes(loader.kv_layouts(sizes));
}

Result<int64_t> EagleHead::sized_bytes(const ModelFile& file, const Model& target, Stream& stream,
                                       const EagleSizes& sizes) {
  Loader loader(file, target, stream);
  TRY(loader.find(sizes));
  Scratch scratch;
  Rows rows;
  const size_t bytes = scratch_bytes([&](ScratchLayout& layout) { loader.lay_out(layout, sizes, scratch, rows); });
  return loader.weight_bytes() + static_cast<int64_t>(bytes) + kv_pool_bytes(loader.kv_layouts(sizes), sizes.n_blocks);
}

Result<std::unique_ptr<EagleHead>> EagleHead::load(std::shared_ptr<const ModelFile> file, const Model& target,
                                                   Stream& stream, const EagleSizes& sizes) {
  std::unique_ptr<EagleHead> out(new EagleHead(stream));
  Loader loader(*file, target, stream);
  TRY(loader.find(sizes));
  ASSIGN_OR_RETURN(KvStore kv, KvStore::create(loader.kv_layouts(sizes), sizes.n_blocks, stream.memory()));
  out->kv_ = std::make_unique<KvStore>(std::move(kv));
  const auto lay_out = [&](ScratchLayout& layout) { loader.lay_out(layout, sizes, out->whole_, out->rows_); };
  ASSIGN_OR_RETURN(out->whole_.memory, allocate_scratch(stream.memory(), lay_out, "the rows of an EAGLE head"));
  out->step_.cut_to(out->whole_, 1, 1);
  if (stream.copies_to_host()) out->logits_on_host_.resize(static_cast<size_t>(out->rows_.logits.n_elements()));
  out->every_token_.resize(static_cast<size_t>(sizes.n_tokens));
  std::iota(out->every_token_.begin(), out->every_token_.end(), 0);
  out->file_ = std::move(file);
  out->sizes_ = sizes;
  out->form_ = loader.form();
  out->weights_ = loader.load();
  ASSIGN_OR_RETURN(out->layer_, loader.load_layer(out->weights_.vocabulary, sizes, /*sized_only=*/false));
  out->rope_ = make_rope_table(out->form_.layer.ropes.front(), sizes.context_len);
  out->taps_ = {.layers = out->form_.tap_layers, .out = out->rows_.taps};
  TRY(stream.reserve_workspace(std::max(stream.workspace_bytes(), loader.workspace_bytes(sizes))));
  return out;
}

}  // namespace ibid
