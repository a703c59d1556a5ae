// A model whose layers keep different things: other numbers of heads, other lengths, a window, and one that reads an
// earlier layer's keys and values. No architecture that runs here has such layers, so this one is made by hand, and the
// cache, the engine and the passes are tried with it.
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

inline constexpr int kWidth = 48, kVocab = 40, kLayers = 4, kPairs = 4, kContext = 160, kSteps = 64;
inline constexpr int kQueryHeads[kLayers] = {4, 2, 3, 6};
inline const KvGeometry kGeometry[kLayers] = {
    {.n_kv_heads = 1, .key_len = 16, .value_len = 16},
    {.n_kv_heads = 2, .key_len = 24, .value_len = 24},
    {.n_kv_heads = 3, .key_len = 8, .value_len = 8, .window = 5},
    {.n_kv_heads = 2, .key_len = 24, .value_len = 24, .owner = 1},
};
inline int q_len(int layer) { return kQueryHeads[layer] * kGeometry[layer].key_len; }
inline int kv_len(int layer) { return kGeometry[layer].n_kv_heads * kGeometry[layer].key_len; }
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
      k.emplace_back(kv_len(l), kWidth, random);
      v.emplace_back(kv_len(l), kWidth, random);
      o.emplace_back(kWidth, q_len(l), random);
    }
  }
};

// x += o * attention(turned q, turned k, v) for each layer; logits = embedding * x.
class HandMade final : public Model {
 public:
  HandMade(Matrices& m, Stream& s) : Model(parts()) {
    embedding_ = prepare_weight(s, m.embedding.view());
    for (size_t l = 0; l < kLayers; ++l) {
      q_.push_back(prepare_weight(s, m.q[l].view()));
      k_.push_back(prepare_weight(s, m.k[l].view()));
      v_.push_back(prepare_weight(s, m.v[l].view()));
      o_.push_back(prepare_weight(s, m.o[l].view()));
    }
    CHECK(s.reserve_workspace(ops::paged_attention_workspace_bytes(kSteps, 6, 24, kContext)).ok());
  }
  KvGeometry kv_geometry(int layer) const override { return kGeometry[layer]; }

 private:
  static Parts parts() {
    Parts p;
    p.config = {.n_layers = kLayers, .width = kWidth, .vocab_size = kVocab, .trained_context_len = kContext};
    p.config.ropes = {{.n_pairs = kPairs}};
    p.config.layers.resize(kLayers);
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
  void run(Pass& p) override {
    Stream& s = p.s;
    const ForwardBatch& b = p.batch;
    const std::span<const PagedKv> kv = p.kv;
    const TensorView& logits = p.logits;
    const int64_t T = b.n_tokens;
    const TensorView x = cut(x_memory_, T, kWidth), out = cut(out_memory_, T, kWidth);
    const TensorView angles = cut(angles_, T, 2 * kPairs);
    ops::embed(s, x, embedding_, {b.tokens, static_cast<size_t>(T)});
    ops::rope_angles(s, angles, rope_tables_[0].op(), {b.positions, static_cast<size_t>(T)});
    for (int l = 0; l < kLayers; ++l) {
      const auto i = static_cast<size_t>(l);
      const int D = kGeometry[l].key_len;
      const TensorView q = cut(q_memory_, T, q_len(l)), attention = cut(attention_, T, q_len(l));
      product(s, {q}, x, {&q_[i]});
      ops::rope(s, q, D, rope_tables_[0].op(), angles);
      if (kGeometry[l].owner == kOwnCache) {
        const TensorView k = cut(k_memory_, T, kv_len(l)), v = cut(v_memory_, T, kv_len(l));
        product(s, {k, v}, x, {&k_[i], &v_[i]});
        ops::rope(s, k, D, rope_tables_[0].op(), angles);
        ops::store_kv(s, kv[i], k, v, b);
      }
      ops::paged_attention(s, attention, q, kv[i], b, {.scale = scale_of(l), .window = kGeometry[l].window});
      product(s, {out}, attention, {&o_[i]});
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
