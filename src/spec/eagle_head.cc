#include "spec/eagle_head.h"

#include <algorithm>
#include <array>

#include "base/planted.h"
#include "kernels/ops.h"
#include "model/blocks.h"

namespace ibid {
namespace {

std::span<float> row_of(const TensorView& x, int32_t row) {
  return {x.row_as<float>(row), static_cast<size_t>(x.row_len())};
}

void copy_rows(const TensorView& out, const TensorView& x) {
  for (int64_t i = 0; i < out.dim[0]; ++i)
    std::ranges::copy(std::span(x.row_as<const float>(i), static_cast<size_t>(x.row_len())), out.row_as<float>(i));
}

}  // namespace

void EagleHead::copy_feature(int32_t tap_row, std::span<float> to) const {
  CHECK(std::ssize(to) == feature_len_);
  auto at = to.begin();
  for (const TensorView& tap : rows_.taps) at = std::ranges::copy(row_of(tap, tap_row), at).out;
}

std::span<float> EagleHead::feature(int32_t row) { return row_of(rows_.features, row); }

std::span<float> EagleHead::state(int32_t row) { return row_of(rows_.states, row); }

// EAGLE-1's states are the features.
void EagleHead::fuse(int32_t n) {
  if (!is_third_) return;
  const TensorView features = rows_.features.first_rows(n);
  for (size_t i = 0; i < feature_norms_.size(); ++i) {
    const int64_t len = feature_norms_[i].row_len();
    const TensorView part = features.columns(static_cast<int64_t>(i) * len, len);
    ops::rms_norm(stream_, part, part, feature_norms_[i], config_.norm_eps);
  }
  product(rows_.states.first_rows(n), fc_, features);
}

EagleHead::Said EagleHead::run(const ForwardBatch& batch) {
  CHECK(batch.n_tokens <= sizes_.n_tokens && batch.n_rows <= sizes_.most_rows() && batch.n_sequences <= sizes_.n_texts);
  const Inputs inputs = read(batch);
  if (batch.n_rows == 0) return {};
  answer(batch, inputs.read, inputs.x);
  return say(batch, inputs.x);
}

void EagleHead::product(const TensorView& out, const Product& w, const TensorView& x) {
  const Weight* weight = &w.weight;
  ops::linear(stream_, {&out, 1}, x, {&weight, 1});
  if (w.bias.rank != 0) ops::add_bias(stream_, out, w.bias);
}

void EagleHead::embed(const ForwardBatch& batch, const TensorView& out) {
  const bool has_own = embedding_.n_outputs > 0;
  ops::embed(stream_, out, has_own ? embedding_ : target_.vocabulary()->embedding,
             {batch.tokens, static_cast<size_t>(batch.n_tokens)}, has_own ? 1 : target_.config().embedding_scale);
}

void EagleHead::norm_heads(const TensorView& x, const TensorView& weight) {
  if (weight.rank == 0) return;
  const int64_t D = config_.head_len;
  const TensorView heads(x.data, DType::kF32, {x.n_elements() / D, D});
  ops::rms_norm(stream_, heads, heads, weight, config_.norm_eps);
}

// Stores the keys and values of what the attention reads.
EagleHead::Inputs EagleHead::read(const ForwardBatch& batch) {
  const int64_t C = width_, n = batch.n_tokens;
  const bool hidden_first = hidden_first_ && !PLANTED("an_mtp_layers_halves_are_swapped");
  const TensorView inputs = rows_.inputs.first_rows(n);
  const TensorView token = inputs.columns(hidden_first ? C : 0, C), state = inputs.columns(hidden_first ? 0 : C, C);
  const TensorView states = rows_.states.first_rows(n), x = rows_.x.first_rows(n);
  TensorView read = inputs;
  embed(batch, token);
  if (is_third_) {
    ops::rms_norm(stream_, token, token, input_norm_, config_.norm_eps);
    ops::rms_norm(stream_, state, states, hidden_norm_, config_.norm_eps);
    copy_rows(x, residual_is_normed_ ? state : states);
  } else if (is_mtp_) {
    ops::rms_norm(stream_, token, token, embed_norm_, config_.norm_eps);
    ops::rms_norm(stream_, state, states, hidden_norm_, config_.norm_eps);
    product(x, fc_, inputs);
    read = rows_.h.first_rows(n);
    ops::rms_norm(stream_, read, x, input_norm_, config_.norm_eps);
  } else {
    copy_rows(state, states);
    product(x, fc_, inputs);
    read = x;
  }
  const TensorView k = rows_.k.first_rows(n), v = rows_.v.first_rows(n), angles = rows_.cos_sin.first_rows(n);
  product(k, k_, read);
  product(v, v_, read);
  norm_heads(k, k_norm_);
  ops::rope_angles(stream_, angles, rope_.op(), {batch.positions, static_cast<size_t>(n)});
  ops::rope(stream_, k, static_cast<int>(config_.head_len), rope_.op(), angles);
  ops::store_kv(stream_, kv_->layers()[0], k, v, batch);
  return {read, x};
}

// The rest of the layer: x becomes what it adds up to. `read` may lie in rows_.h and is gone then.
void EagleHead::answer(const ForwardBatch& batch, const TensorView& read, const TensorView& x) {
  const int64_t n = batch.n_tokens;
  const TensorView q = rows_.q.first_rows(n), attention = rows_.attention.first_rows(n), h = rows_.h.first_rows(n);
  const TensorView gate = rows_.gate.first_rows(n), up = rows_.up.first_rows(n), out = rows_.out.first_rows(n);
  product(q, q_, read);
  norm_heads(q, q_norm_);
  ops::rope(stream_, q, static_cast<int>(config_.head_len), rope_.op(), rows_.cos_sin.first_rows(n));
  ops::paged_attention(stream_, attention, q, kv_->layers()[0], batch, {.scale = config_.attention_scale});
  product(out, o_, attention);
  ops::add_rms_norm(stream_, h, x, out, ffn_norm_, config_.norm_eps);
  product(gate, gate_, h);
  product(up, up_, h);
  ops::silu_mul(stream_, gate, gate, up);
  product(out, down_, gate);
  ops::add(stream_, x, out);
}

EagleHead::Said EagleHead::say(const ForwardBatch& batch, const TensorView& x) {
  const int64_t R = batch.n_rows;
  const TensorView wanted = rows_.wanted.first_rows(R), normed = rows_.normed.first_rows(R);
  const TensorView logits = rows_.logits.first_rows(R);
  ops::gather_rows(stream_, wanted, x, {batch.logit_rows, static_cast<size_t>(R)});
  const bool has_norm = norm_.rank != 0;
  if (has_norm) ops::rms_norm(stream_, normed, wanted, norm_, config_.norm_eps);
  const TensorView& last = has_norm ? normed : wanted;
  if (output_.weight.n_outputs > 0) {
    product(logits, output_, last);
  } else {
    const Weight* weight = &target_.vocabulary()->output.weight;
    ops::linear(stream_, {&logits, 1}, last, {&weight, 1});
    if (const float cap = target_.config().logit_soft_cap; cap != 0) ops::soft_cap(stream_, logits, cap);
  }
  const TensorView& states = state_is_normed_ && !PLANTED("an_mtp_layer_goes_on_without_its_norm") ? last : wanted;
  return {{logits.row_as<const float>(0), static_cast<size_t>(logits.n_elements())},
          {states.row_as<const float>(0), static_cast<size_t>(states.n_elements())}};
}

}  // namespace ibid
