#include "spec/heads/eagle_head.h"

#include <algorithm>

#include "kernels/ops.h"

namespace ibid {

void EagleHead::keep_features(std::span<const int32_t> tap_rows, std::span<const int32_t> kept) {
  int64_t at = 0;
  for (const TensorView& tap : rows_.taps) {
    ops::copy_rows(stream_, rows_.kept.columns(at, tap.row_len()), kept, tap, tap_rows);
    at += tap.row_len();
  }
}

void EagleHead::move_kept(int32_t from, int32_t to) {
  if (from != to) ops::copy_rows(stream_, rows_.kept, {&to, 1}, rows_.kept, {&from, 1});
}

void EagleHead::load_features(std::span<const int32_t> kept) {
  ops::gather_rows(stream_, rows_.features.first_rows(std::ssize(kept)), rows_.kept, kept);
}

void EagleHead::load_states(std::span<const int32_t> result_rows) {
  ops::gather_rows(stream_, rows_.states.first_rows(std::ssize(result_rows)), result_states_, result_rows);
}

// For other kinds the states are the features.
void EagleHead::fuse(int32_t n) {
  if (!is_third()) return;
  const TensorView features = rows_.features.first_rows(n), states = rows_.states.first_rows(n);
  int64_t at = 0;
  for (const TensorView& norm : weights_.feature_norms) {
    const TensorView part = features.columns(at, norm.row_len());
    ops::rms_norm(stream_, part, part, norm, form_.layer.norm_eps);
    at += norm.row_len();
  }
  const Linear* fc = &weights_.fc;
  linear(stream_, {}, {&states, 1}, features, {&fc, 1});
}

EagleHead::PassResult EagleHead::run(const ForwardBatch& batch) {
  CHECK(batch.n_tokens <= sizes_.n_tokens && batch.n_rows <= sizes_.most_rows() &&
        batch.n_sequences <= sizes_.n_sequences);
  step_.cut_to(whole_, batch.n_tokens, batch.n_rows);
  const Tap no_tap;
  const StateSlots no_states;
  const StateLayout no_state_layout;
  Pass p{.s = stream_,
         .config = form_.layer,
         .batch = batch,
         .kv = kv_->layers(),
         .states = no_states,
         .state_layout = no_state_layout,
         .ropes = std::span(&rope_, layer_ == nullptr ? 1 : 0),  // the model's own layer turns by angles of its own
         .hidden = {},
         .logits = rows_.logits.first_rows(batch.n_rows),
         .inputs = {},
         .tap = no_tap,
         .t = step_,
         .rows = {&batch, std::span(every_token_).first(static_cast<size_t>(batch.n_tokens))}};
  result_states_ = {};
  layer_ == nullptr ? run_own_layer(p) : run_models_layer(p);
  if (batch.n_rows == 0) return {};
  const auto n = static_cast<size_t>(p.logits.n_elements());
  const DeviceSpan<const float> logits(p.logits.row_as<const float>(0), n);
  return {stream_.on_host(logits, std::span(logits_on_host_)), result_states_};
}

void EagleHead::run_own_layer(Pass& p) {
  const Scratch& t = step_;
  const float eps = form_.layer.norm_eps;
  begin_layer(p, 0);
  attention_block(p, weights_.attention, attention_input(p), 0);
  if (!keep_wanted_rows(p, 0)) return;
  attention_output(p, weights_.attention, 0);
  ops::add_rms_norm(stream_, t.h, t.x, t.out, weights_.ffn_norm, eps);
  gated_ffn(p, weights_.ffn, ops::silu_mul, 0);
  if (const TensorView& norm = weights_.vocabulary.output_norm; norm.rank != 0) {
    ops::add_rms_norm(stream_, t.h, t.x, t.out, norm, eps);
  } else {
    ops::add(stream_, t.x, t.out);
    step_.h = t.x;
  }
  logits_head(p, weights_.vocabulary);
  result_states_ = form_.state_is_normed ? t.h : t.x;
}

void EagleHead::run_models_layer(Pass& p) {
  attention_input(p);
  layer_->forward(stream_, p.batch, kv_->layers(), p.logits, {.layers = {}, .out = {}, .of_rows = &result_states_}, {},
                  step_.x);
}

// Embeds the tokens beside the states and computes t.x. Returns the attention's input, [T, C or 2 C], of an MTP layer
// that of its norm.
TensorView EagleHead::attention_input(Pass& p) {
  const Scratch& t = p.t;
  const int64_t C = p.config.width;
  const float eps = p.config.norm_eps;
  const bool hidden_first = form_.hidden_first;
  const TensorView inputs = rows_.inputs.first_rows(p.batch.n_tokens);
  const TensorView token = inputs.columns(hidden_first ? C : 0, C), state = inputs.columns(hidden_first ? 0 : C, C);
  embed_tokens(p, weights_.vocabulary, token);
  if (form_.kind != EagleForm::Kind::kFirst) {
    ops::rms_norm(stream_, token, token, weights_.token_norm, eps);
    ops::rms_norm(stream_, state, t.x, weights_.state_norm, eps);
  }
  if (is_third()) {
    if (form_.residual_is_normed) ops::rms_norm(stream_, t.x, t.x, weights_.state_norm, eps);
    return inputs;
  }
  project(p, weights_.fc, t.x, inputs);
  return t.x;
}

}  // namespace ibid
