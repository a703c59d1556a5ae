#include "model/bert.h"

#include <algorithm>
#include <utility>

#include "kernels/ops.h"

namespace ibid {
namespace {

Status load_norm(WeightLoader& w, std::string_view name, int64_t layer, int64_t len, TensorView& weight,
                 TensorView& bias) {
  TRY(w.vector(weight, std::string(name) + ".weight", layer, len));
  return w.vector(bias, std::string(name) + ".bias", layer, len);
}

}  // namespace

Result<std::unique_ptr<Model>> BertModel::load(Parts parts, WeightLoader& loader) {
  std::unique_ptr<BertModel> model(new BertModel(std::move(parts)));
  TRY(model->load_weights(loader));
  TRY(model->load_head(loader));
  TRY(model->make_room(loader.memory()));
  return std::unique_ptr<Model>(std::move(model));
}

Status BertModel::load_weights(WeightLoader& w) {
  const ModelConfig& c = config_;
  constexpr bool kRowsAlone = false;
  TRY(w.matrix(tokens_, "token_embd.weight", 0, c.vocab_size, c.width, kRowsAlone));
  TRY(w.matrix(positions_, "position_embd.weight", 0, c.trained_context_len, c.width, kRowsAlone));
  if (c.n_token_types > 0) TRY(w.matrix(types_, "token_types.weight", 0, c.n_token_types, c.width, kRowsAlone));
  TRY(load_norm(w, "token_embd_norm", 0, c.width, embedding_norm_.weight, embedding_norm_.bias));
  layers_.resize(static_cast<size_t>(c.n_layers));
  for (int64_t l = 0; l < c.n_layers; ++l) {
    Layer& layer = layers_[static_cast<size_t>(l)];
    const int64_t F = c.layers[static_cast<size_t>(l)].ffn_len;
    TRY(load_attention(w, c, l, layer.attention));
    TRY(load_norm(w, "blk.{}.attn_output_norm", l, c.width, layer.attn_norm.weight, layer.attn_norm.bias));
    TRY(w.linear(layer.up,
                 {.name = "blk.{}.ffn_up", .n_outputs = F, .n_inputs = c.width, .cut = Cut::kOutputs, .has_bias = true},
                 l));
    TRY(w.linear(
        layer.down,
        {.name = "blk.{}.ffn_down", .n_outputs = c.width, .n_inputs = F, .cut = Cut::kInputs, .has_bias = true}, l));
    TRY(load_norm(w, "blk.{}.layer_output_norm", l, c.width, layer.output_norm.weight, layer.output_norm.bias));
  }
  return {};
}

Status BertModel::load_head(WeightLoader& w) {
  const ModelConfig& c = config_;
  if (c.dense_head)
    TRY(w.linear(dense_, {.name = "cls", .n_outputs = c.width, .n_inputs = c.width, .has_bias = true}, 0));
  if (c.n_labels == 0) return {};
  return w.linear(labels_, {.name = "cls.output", .n_outputs = c.n_labels, .n_inputs = c.width, .has_bias = true}, 0);
}

Status BertModel::make_room(const DeviceMemory& memory) {
  const int64_t T = options_.step_tokens, S = options_.max_sequences;
  const auto n_blocks = static_cast<int32_t>(T / kBlockLen + std::min(T, S));
  const std::vector<KvLayout> layout = kv_layouts(std::vector{ibid::kv_geometry(config_, 0)}, DType::kF32, kBlockLen);
  ASSIGN_OR_RETURN(room_, Buffer::allocate(memory, static_cast<size_t>(kv_pool_bytes(layout, n_blocks)),
                                           "keys and values of a step of " + std::to_string(T) + " tokens"));
  room_.take();
  memory_.scratch_bytes += static_cast<int64_t>(room_.bytes());
  kv_ = kv_pool(layout, n_blocks, room_.data()).front();
  for (int32_t i = 0; i < n_blocks; ++i) blocks_.push_back(BlockId{i});
  arrays_ = BatchArrays(kBlockLen, {.n_tokens = static_cast<size_t>(T),
                                    .n_sequences = static_cast<size_t>(S),
                                    .n_blocks = static_cast<size_t>(n_blocks)});
  for (std::vector<TokenId>* each : {&position_rows_, &type_rows_}) each->reserve(static_cast<size_t>(T));
  return {};
}

void BertModel::lay_out(const ForwardBatch& b) {
  arrays_.clear();
  position_rows_.clear();
  type_rows_.clear();
  size_t first_block = 0;
  // A model may have one type for both texts of a pair, as XLM-R has.
  const auto last_type = static_cast<int32_t>(std::max<int64_t>(config_.n_token_types, 1) - 1);
  for (int32_t s = 0; s < b.n_sequences; ++s) {
    const int32_t begin = b.query_start[s], n = b.query_start[s + 1] - begin;
    const auto n_blocks = static_cast<size_t>((n + kBlockLen - 1) / kBlockLen);
    const auto blocks = std::span(blocks_).subspan(std::exchange(first_block, first_block + n_blocks), n_blocks);
    for (int32_t i = 0; i < n; ++i) {
      CHECK(b.positions[begin + i] == i, "an encoder reads a text from its begin to its end in one step");
      arrays_.add(b.tokens[begin + i], n - 1, slot_in(blocks, kBlockLen, i));
      position_rows_.push_back(TokenId{i});
      type_rows_.push_back(
          TokenId{b.token_types == nullptr ? 0 : std::min<int32_t>(b.token_types[begin + i], last_type)});
    }
    arrays_.add_blocks(blocks);
    arrays_.end_sequence();
  }
  step_ = arrays_.batch();
}

void BertModel::embed(const Pass& p) {
  const Scratch& t = p.t;
  ops::embed(p.s, t.x, tokens_, {p.batch.tokens, static_cast<size_t>(p.batch.n_tokens)});
  if (p.config.n_token_types > 0) {
    ops::embed(p.s, t.h, types_, type_rows_);
    ops::add(p.s, t.x, t.h);
  }
  ops::embed(p.s, t.h, positions_, position_rows_);
  ops::add(p.s, t.x, t.h);
  ops::layer_norm(p.s, t.x, t.x, embedding_norm_.weight, embedding_norm_.bias, p.config.norm_eps);
  p.seen("embed", -1, t.x);
}

void BertModel::add_norm(const Pass& p, const Norm& w) const {
  ops::add(p.s, p.t.x, p.t.out);
  ops::layer_norm(p.s, p.t.x, p.t.x, w.weight, w.bias, p.config.norm_eps);
}

void BertModel::attention(const Pass& p, const Layer& w, int l) {
  const Scratch& t = p.t;
  project(p, w.attention.qkv, t.x);
  p.seen("q", l, t.q);
  p.seen("k", l, t.k);
  p.seen("v", l, t.v);
  ops::store_kv(p.s, kv_, t.k, t.v, step_);
  ops::paged_attention(p.s, t.attention, t.q, kv_, step_, {.scale = p.layer(l).attention_scale});
  p.seen("attention", l, t.attention);
  project(p, w.attention.output, t.out, t.attention);
  p.seen("attn_out", l, t.out);
  add_norm(p, w.attn_norm);
  p.seen("post_attn_norm", l, t.x);
}

void BertModel::feed_forward(const Pass& p, const Layer& w, int l) {
  const Scratch& t = p.t;
  project(p, w.up, t.up, t.x);
  p.seen("up", l, t.up);
  (p.config.gelu_by_tanh ? ops::gelu_tanh : ops::gelu)(p.s, t.up, t.up);
  p.seen("gated", l, t.up);
  project(p, w.down, t.out, t.up);
  p.seen("ffn_out", l, t.out);
  add_norm(p, w.output_norm);
}

void BertModel::score(Pass& p) {
  give_hidden(p, p.n_layers(), p.t.x);
  if (p.batch.n_rows == 0) return;
  CHECK(p.config.n_labels > 0, "rows of a model without a head");
  const std::span<const int32_t> rows{p.batch.logit_rows, static_cast<size_t>(p.batch.n_rows)};
  ops::gather_rows(p.s, p.t.x_rows, p.t.x, rows);
  p.rows.tokens = rows;
  TensorView x = p.t.x_rows;
  if (p.config.dense_head) {
    x = p.t.attention_rows;  // [R, C] too
    project(p, dense_, x, p.t.x_rows);
    ops::tanh(p.s, x, x);
    p.seen("pooled", -1, x);
  }
  const TensorView scores = p.logits.columns(0, p.config.n_labels);
  project(p, labels_, scores, x);
  p.seen("scores", -1, scores);
}

void BertModel::run(Pass& p) {
  lay_out(p.batch);
  embed(p);
  for (int l = 0; l < p.n_layers(); ++l) {
    begin_layer(p, l);
    attention(p, layers_[static_cast<size_t>(l)], l);
    feed_forward(p, layers_[static_cast<size_t>(l)], l);
    layer_done(p, l);
  }
  score(p);
}

}  // namespace ibid
