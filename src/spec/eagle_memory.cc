// What an EagleHead holds: its weights, the rows of a pass, keys and values.
#include <algorithm>
#include <array>
#include <utility>

#include "kernels/ops.h"
#include "model/rope.h"
#include "spec/eagle_loader.h"
#include "tensor/dequantise.h"

namespace ibid {
namespace {

constexpr size_t kAligned = 64;

TensorView as_floats(const TensorInfo& t, std::vector<std::unique_ptr<float[]>>& copies) {
  const int64_t n = t.view.row_len();
  copies.push_back(std::make_unique<float[]>(static_cast<size_t>(n)));
  dequantise_row(t.view.dtype, t.view.data, copies.back().get(), n);
  return {copies.back().get(), DType::kF32, {n}};
}

}  // namespace

int64_t EagleHead::Loader::weight_bytes() const {
  int64_t bytes = embedding_.weight != nullptr ? static_cast<int64_t>(embedding_.weight->bytes()) : 0;
  for (const HeadMatrix* m : {&fc_, &q_, &k_, &v_, &o_, &gate_, &up_, &down_, &output_}) {
    if (m->weight != nullptr)
      bytes += std::max(prepared_bytes(stream_, m->weight->view), static_cast<int64_t>(m->weight->bytes()));
  }
  return bytes;
}

size_t EagleHead::Loader::lay(const EagleSizes& sizes, std::byte* memory, Rows& rows) const {
  const ModelConfig& c = config_;
  const int64_t C = c.width, T = sizes.n_tokens, R = sizes.most_rows();
  size_t bytes = 0;
  const auto lay_one = [&](TensorView& out, int64_t n_rows, int64_t n_columns) {
    const auto n = static_cast<size_t>(n_rows * n_columns) * sizeof(float);
    if (memory != nullptr) out = TensorView(memory + bytes, DType::kF32, {n_rows, n_columns});
    bytes += (n + kAligned - 1) / kAligned * kAligned;
  };
  if (is_third_) lay_one(rows.features, T, feature_len());
  lay_one(rows.states, T, C);
  if (!is_third_) rows.features = rows.states;
  lay_one(rows.inputs, T, 2 * C);
  for (TensorView* x : {&rows.x, &rows.h, &rows.out}) lay_one(*x, T, C);
  for (TensorView* x : {&rows.q, &rows.attention}) lay_one(*x, T, c.q_len());
  for (TensorView* x : {&rows.k, &rows.v}) lay_one(*x, T, c.kv_len());
  for (TensorView* x : {&rows.gate, &rows.up}) lay_one(*x, T, c.ffn_len);
  for (TensorView* x : {&rows.wanted, &rows.normed}) lay_one(*x, R, C);
  lay_one(rows.logits, R, n_outputs());
  lay_one(rows.cos_sin, T, 2 * c.ropes.front().n_pairs);
  rows.taps.resize(tap_layers_.size());
  for (TensorView& tap : rows.taps) lay_one(tap, sizes.step_tokens, target_width());
  return bytes;
}

size_t EagleHead::Loader::workspace_bytes(const EagleSizes& sizes) const {
  const ModelConfig& c = config_;
  size_t bytes = ops::paged_attention_workspace_bytes(sizes.n_tokens, static_cast<int32_t>(c.n_heads),
                                                      static_cast<int32_t>(c.head_len), sizes.context_len);
  for (const int64_t n_inputs : {2 * c.width, feature_len(), c.q_len(), c.ffn_len})
    bytes = std::max(bytes, ops::linear_workspace_bytes(sizes.n_tokens, n_inputs));
  return bytes;
}

Status EagleHead::Loader::load(Stream& stream, EagleHead& out) const {
  out.config_ = config_;
  out.is_third_ = is_third_;
  out.is_mtp_ = is_mtp_;
  out.hidden_first_ = hidden_first_;
  out.residual_is_normed_ = residual_is_normed_;
  out.state_is_normed_ = state_is_normed_;
  out.width_ = static_cast<int32_t>(config_.width);
  out.feature_len_ = static_cast<int32_t>(feature_len());
  out.ids_ = ids_;
  out.tap_layers_ = tap_layers_;
  const std::array<std::pair<const HeadMatrix*, Product*>, 9> products = {{{&fc_, &out.fc_},
                                                                           {&q_, &out.q_},
                                                                           {&k_, &out.k_},
                                                                           {&v_, &out.v_},
                                                                           {&o_, &out.o_},
                                                                           {&gate_, &out.gate_},
                                                                           {&up_, &out.up_},
                                                                           {&down_, &out.down_},
                                                                           {&output_, &out.output_}}};
  for (const auto& [from, to] : products) {
    if (from->weight != nullptr) to->weight = prepare_weight(stream, from->weight->view);
    if (from->bias != nullptr) to->bias = as_floats(*from->bias, out.copies_);
  }
  const std::array<std::pair<const TensorInfo*, TensorView*>, 7> norms = {{{embed_norm_, &out.embed_norm_},
                                                                           {q_norm_, &out.q_norm_},
                                                                           {k_norm_, &out.k_norm_},
                                                                           {input_norm_, &out.input_norm_},
                                                                           {hidden_norm_, &out.hidden_norm_},
                                                                           {ffn_norm_, &out.ffn_norm_},
                                                                           {norm_, &out.norm_}}};
  for (const auto& [from, to] : norms) {
    if (from != nullptr) *to = as_floats(*from, out.copies_);
  }
  for (const TensorInfo* norm : feature_norms_) out.feature_norms_.push_back(as_floats(*norm, out.copies_));
  if (embedding_.weight == nullptr) return {};
  // Rows are read where they lie.
  const TensorView& view = embedding_.weight->view;
  out.embedding_ = {.dtype = view.dtype, .n_outputs = view.dim[0], .n_inputs = view.dim[1], .raw = view};
  return {};
}

// ---- EagleHead -----------------------------------------------------------------------------------------------------

Result<int64_t> EagleHead::block_bytes(const ModelFile& file, const Model& target, const Stream& stream,
                                       const EagleSizes& sizes) {
  Loader loader(file, target, stream);
  TRY(loader.find());
  const KvGeometry geometry = loader.geometry();
  return kv_block_bytes(kv_layouts({&geometry, 1}, sizes.kv_dtype, sizes.block_len));
}

Result<int64_t> EagleHead::sized_bytes(const ModelFile& file, const Model& target, const Stream& stream,
                                       const EagleSizes& sizes) {
  Loader loader(file, target, stream);
  TRY(loader.find());
  const KvGeometry geometry = loader.geometry();
  const auto layouts = kv_layouts({&geometry, 1}, sizes.kv_dtype, sizes.block_len);
  Rows none;
  return loader.weight_bytes() + static_cast<int64_t>(loader.lay(sizes, nullptr, none)) +
         kv_pool_bytes(layouts, sizes.n_blocks);
}

Result<std::unique_ptr<EagleHead>> EagleHead::load(std::shared_ptr<const ModelFile> file, const Model& target,
                                                   Stream& stream, const EagleSizes& sizes) {
  std::unique_ptr<EagleHead> out(new EagleHead(target, stream));
  Loader loader(*file, target, stream);
  TRY(loader.find());
  const KvGeometry geometry = loader.geometry();
  const auto layouts = kv_layouts({&geometry, 1}, sizes.kv_dtype, sizes.block_len);
  ASSIGN_OR_RETURN(KvStore kv, KvStore::create(layouts, sizes.n_blocks, stream.memory()));
  out->kv_ = std::make_unique<KvStore>(std::move(kv));
  const size_t bytes = loader.lay(sizes, nullptr, out->rows_);
  ASSIGN_OR_RETURN(out->memory_, Buffer::allocate(stream.memory(), bytes, "the rows of an EAGLE head"));
  loader.lay(sizes, out->memory_.data(), out->rows_);
  TRY(loader.load(stream, *out));
  out->file_ = std::move(file);
  out->sizes_ = sizes;
  out->rope_ = make_rope_table(out->config_.ropes.front(), sizes.context_len);
  out->taps_ = {.layers = out->tap_layers_, .out = out->rows_.taps};
  TRY(stream.reserve_workspace(std::max(stream.workspace_bytes(), loader.workspace_bytes(sizes))));
  return out;
}

}  // namespace ibid
