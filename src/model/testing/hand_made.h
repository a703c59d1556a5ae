// A model whose layers keep different things: other numbers of heads, other lengths of keys and of values, a window,
// one that reads an earlier layer's keys and values, latent rows, and one that keeps nothing. No architecture that runs
// here has such layers, so this one is made by hand, and the cache, the engine and the passes are tried with it.
#pragma once

#include <cmath>
#include <initializer_list>
#include <random>
#include <span>
#include <vector>

#include "base/check.h"
#include "kernels/ops.h"
#include "model/model.h"

namespace ibid::testing::hand_made {

inline constexpr int kWidth = 48, kVocab = 40, kLayers = 6, kPairs = 4, kContext = 160, kSteps = 64;
inline constexpr int kQueryHeads[kLayers] = {4, 2, 3, 6, 5, 0};
inline const KvGeometry kGeometry[kLayers] = {
    {.n_kv_heads = 1, .key_len = 16, .value_len = 16},
    {.n_kv_heads = 2, .key_len = 24, .value_len = 16},
    {.n_kv_heads = 3, .key_len = 8, .value_len = 8, .window = 5},
    {.n_kv_heads = 2, .key_len = 24, .value_len = 16, .owner = 1},
    {.kind = KvKind::kLatent, .n_kv_heads = 1, .key_len = 24, .value_len = 16},
    {.kind = KvKind::kNothing},
};
inline constexpr int kElementsOfToken = 1 * (16 + 16) + 2 * (24 + 16) + 3 * (8 + 8) + 24;  // that the cache keeps
inline bool attends(int layer) { return kGeometry[layer].kind != KvKind::kNothing; }
inline bool has_values(int layer) { return kGeometry[layer].kind == KvKind::kHeads; }
inline int q_len(int layer) { return kQueryHeads[layer] * kGeometry[layer].key_len; }
inline int k_len(int layer) { return kGeometry[layer].n_kv_heads * kGeometry[layer].key_len; }
inline int v_len(int layer) { return kGeometry[layer].n_kv_heads * kGeometry[layer].value_len; }
inline int attention_len(int layer) {
  return attends(layer) ? kQueryHeads[layer] * kGeometry[layer].value_len : kWidth;
}
inline float scale_of(int layer) { return 1.0f / std::sqrt(static_cast<float>(kGeometry[layer].key_len)); }

struct Matrix {
  int64_t n_outputs, n_inputs;
  std::vector<float> values;
  Matrix(int64_t n, int64_t k, std::mt19937_64& random) : n_outputs(n), n_inputs(k) {
    std::uniform_real_distribution<float> value(-0.3f, 0.3f);
    for (int64_t i = 0; i < n * k; ++i) values.push_back(value(random));
  }
  TensorView view() { return {values.data(), DType::kF32, {n_outputs, n_inputs}}; }
};

struct Matrices {
  std::mt19937_64 random{3};
  Matrix embedding{kVocab, kWidth, random};
  std::vector<Matrix> q, k, v, o;
  Matrices() {
    for (int l = 0; l < kLayers; ++l) {
      q.emplace_back(q_len(l), kWidth, random);
      k.emplace_back(k_len(l), kWidth, random);
      v.emplace_back(has_values(l) ? v_len(l) : 0, kWidth, random);
      o.emplace_back(kWidth, attention_len(l), random);
    }
  }
};

// x += o * attention(turned q, turned k, v) for each layer, where a latent row is the turned k and begins with v, and
// of a layer that keeps nothing x += o * x; logits = embedding * x.
// With a state, the last layer keeps one, half of what it was and x: x += o * state.
class HandMade : public Model {
 public:
  HandMade(Matrices& m, Stream& s, bool has_state = false) : Model(parts(has_state)) {
    embedding_ = prepare_weight(s, m.embedding.view());
    for (size_t l = 0; l < kLayers; ++l) {
      const auto prepared = [&s](Matrix& matrix) {
        return matrix.n_outputs > 0 ? prepare_weight(s, matrix.view()) : Weight{};
      };
      q_.push_back(prepared(m.q[l]));
      k_.push_back(prepared(m.k[l]));
      v_.push_back(prepared(m.v[l]));
      o_.push_back(prepared(m.o[l]));
    }
    CHECK(s.reserve_workspace(ops::paged_attention_workspace_bytes(kSteps, 6, 24, kContext)).ok());
  }
  KvGeometry kv_geometry(int layer) const override { return kGeometry[layer]; }

 private:
  static Parts parts(bool has_state) {
    Parts p;
    p.config = {.n_layers = kLayers, .width = kWidth, .vocab_size = kVocab, .trained_context_len = kContext};
    p.config.ropes = {{.n_pairs = kPairs}};
    p.config.layers.resize(kLayers);
    if (has_state) {
      p.config.layers.back().mixer = Mixer::kState;
      p.config.layers.back().state_len = kWidth;
    }
    p.options = {.context_len = kContext, .step_tokens = kSteps, .max_rows = kSteps};
    p.scratch = Scratch::allocate(p.config, kSteps, kSteps).value();
    return p;
  }
  static TensorView cut(std::vector<float>& memory, int64_t rows, int64_t columns) {
    memory.resize(static_cast<size_t>(rows * columns));
    return {memory.data(), DType::kF32, {rows, columns}};
  }
  static void product(Stream& s, std::initializer_list<TensorView> out, const TensorView& x,
                      std::initializer_list<const Weight*> weights) {
    ops::linear(s, {out.begin(), out.size()}, x, {weights.begin(), weights.size()});
  }
  void attend(Pass& p, int l, const TensorView& x, const TensorView& angles, const TensorView& attention) {
    Stream& s = p.s;
    const auto i = static_cast<size_t>(l);
    const KvGeometry& g = kGeometry[l];
    const int64_t T = x.dim[0];
    const TensorView q = cut(q_memory_, T, q_len(l));
    product(s, {q}, x, {&q_[i]});
    ops::rope(s, q, g.key_len, rope_tables_[0].op(), angles);
    if (g.owner == kOwnCache) {
      const TensorView k = cut(k_memory_, T, k_len(l)), v = cut(v_memory_, T, v_len(l));
      product(s, {k}, x, {&k_[i]});
      ops::rope(s, k, g.key_len, rope_tables_[0].op(), angles);
      if (g.kind == KvKind::kLatent) {
        ops::store_latent(s, p.kv[i], k, p.batch);
      } else {
        product(s, {v}, x, {&v_[i]});
        ops::store_kv(s, p.kv[i], k, v, p.batch);
      }
    }
    ops::paged_attention(s, attention, q, p.kv[i], p.batch, {.scale = scale_of(l), .window = g.window});
  }
  static void recur(const Pass& p, int l, const TensorView& x, const TensorView& out) {
    std::vector<float> running(kWidth);
    for (int32_t s = 0; s < p.batch.n_sequences; ++s) {
      walk_states(p.batch, s, p.states_of(l), running,
                  [&](int32_t t, std::span<const float> from, std::span<float> to) {
                    for (size_t c = 0; c < kWidth; ++c) {
                      to[c] = (from.empty() ? 0.0f : 0.5f * from[c]) + x.row_as<float>(t)[c];
                      out.row_as<float>(t)[c] = to[c];
                    }
                  });
    }
  }
  void run(Pass& p) override {
    Stream& s = p.s;
    const ForwardBatch& b = p.batch;
    const TensorView& logits = p.logits;
    const int64_t T = b.n_tokens;
    const TensorView x = cut(x_memory_, T, kWidth), out = cut(out_memory_, T, kWidth);
    const TensorView angles = cut(angles_, T, 2 * kPairs);
    ops::embed(s, x, embedding_, {b.tokens, static_cast<size_t>(T)});
    ops::rope_angles(s, angles, rope_tables_[0].op(), {b.positions, static_cast<size_t>(T)});
    for (int l = 0; l < kLayers; ++l) {
      const auto i = static_cast<size_t>(l);
      const TensorView attention = cut(attention_, T, attention_len(l));
      if (attends(l)) {
        attend(p, l, x, angles, attention);
        product(s, {out}, attention, {&o_[i]});
      } else {
        if (p.layer(l).mixer == Mixer::kState) recur(p, l, x, attention);
        product(s, {out}, p.layer(l).mixer == Mixer::kState ? attention : x, {&o_[i]});
      }
      ops::add(s, x, out);
    }
    if (b.n_rows == 0) return;
    const TensorView wanted = cut(wanted_, b.n_rows, kWidth);
    ops::gather_rows(s, wanted, x, {b.logit_rows, static_cast<size_t>(b.n_rows)});
    product(s, {logits}, wanted, {&embedding_});
  }

  Weight embedding_;
  std::vector<Weight> q_, k_, v_, o_;
  std::vector<float> x_memory_, out_memory_, angles_, q_memory_, k_memory_, v_memory_, attention_, wanted_;
};

}  // namespace ibid::testing::hand_made
