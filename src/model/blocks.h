// The blocks that forward passes share: for each, its weights, how they are loaded, and a function over a Pass that
// reads and writes intermediates of Scratch by name. A pass (model/llama.cc, model/gemma.cc) is these and the norms
// between them, in a line; a block that only some models have (experts, latent attention) is a file of its own beside
// this one (docs/developers/adding_a_model.md). Nothing here allocates during a pass or branches on data.
#pragma once

#include <vector>

#include "base/result.h"
#include "model/pass.h"
#include "model/weights.h"

namespace ibid {

// Products of one input, and where their outputs go. Where a file fuses them, one product whose columns they are.
struct Projections {
  struct Projection {
    TensorView Scratch::*out;
    Linear linear;
  };
  std::vector<Projection> all;
};
void project(const Pass& p, const Projections& w, const TensorView& x);
void project(const Pass& p, const Linear& w, const TensorView& out, const TensorView& x);
// The first values of an intermediate of the largest step, as rows one after the other.
TensorView rows_of(const TensorView& memory, int64_t rows, int64_t columns);

// Both ends of a pass: the embedding, and the head that makes logits. Tied, they are one matrix.
struct VocabularyWeights {
  Weight embedding;           // [V, C]
  TensorView embedding_norm;  // [C] of ones; rank 0: none
  TensorView output_norm;     // [C]
  Linear output;              // [V, C]
};
Status load_vocabulary(WeightLoader& loader, const ModelConfig& config, VocabularyWeights& out);
// tokens -> out[T, C]; and the angles of all RoPEs, t.cos_sin, which attention blocks read.
void embed_tokens(Pass& p, const VocabularyWeights& w, const TensorView& out);
// The angles alone.
void turn_angles(Pass& p);
// t.h, after the final norm -> logits, of the rows that are wanted.
void logits_head(Pass& p, const VocabularyWeights& w);

// Before anything of layer `layer`: the intermediates are of its sizes.
inline void begin_layer(Pass& p, int layer) { p.t.fit(p.layer(layer)); }

// Rotary attention over grouped heads.
struct AttentionWeights {
  Projections qkv;  // [H Dk, I], [K Dk, I], [K Dv, I], in this order; or one of them all. I: the width of what
                    // it reads. With biases where the model has them. The first alone where the layer reads
                    // another's cache; the first two where values are products of the keys' weights
  TensorView q_norm, k_norm;  // [Dk], of each head, or [H Dk], [K Dk] of all together; rank 0: none
  TensorView v_norm;          // [Dv] of ones; rank 0: none
  TensorView sinks;           // [H] F32 (ops::AttentionParams); rank 0: none
  TensorView slopes;          // likewise
  Linear output;              // [C, H Dv]
};
Status load_attention(WeightLoader& loader, const ModelConfig& config, int64_t layer, AttentionWeights& out);
// x[T, I] -> t.attention; writes t.q, t.k, t.v and the layer's keys and values of this step, unless it reads another
// layer's. Keys and values alone where nothing else is needed, as keep_wanted_rows() returns for the layer.
void attention_block(Pass& p, const AttentionWeights& w, const TensorView& x, int layer);
// t.attention -> t.out, by the product that ends any mixer.
void mixer_output(Pass& p, const Linear& w, int layer);
void attention_output(Pass& p, const AttentionWeights& w, int layer);

// Whether anything of a layer is wanted besides what it caches.
bool goes_on(const Pass& p, int layer);

// Between the two, in the last layer: from here on rows are those whose logits are needed, unless hidden states of all
// are. False where nothing goes on. A row's bits do not depend on the others.
bool keep_wanted_rows(Pass& p, int layer);

using Activation = void (*)(Stream& s, const TensorView& out, const TensorView& gate, const TensorView& up);
// down(activation(gate) * up), or without a gate down(activation(up)).
struct FfnWeights {
  Projections gate_up;  // [F, C] twice, or one [2 F, C]; the second alone where there is no gate
  Linear down;          // [C, F]
};
Status load_ffn(WeightLoader& loader, const ModelConfig& config, int64_t layer, FfnWeights& out);
// One of width `ffn_len`, with other names: "blk.{}.ffn_gate_shexp" ...
Status load_ffn(WeightLoader& loader, const ModelConfig& config, int64_t layer, int64_t ffn_len, std::string_view gate,
                std::string_view up, std::string_view down, FfnWeights& out);
// The configuration's, of a gate.
Activation activation_of(const ModelConfig& config);
// t.h -> t.out; writes t.gate and t.up.
void gated_ffn(Pass& p, const FfnWeights& w, Activation activation, int layer);

// The configuration's, of a feed-forward without a gate: out = activation(x); out may be x.
using Unary = void (*)(Stream& s, const TensorView& out, const TensorView& x);
Unary ungated_activation_of(const ModelConfig& config);
// The same without a gate; writes t.up.
void ungated_ffn(Pass& p, const FfnWeights& w, int layer);

// Passes x to the consumers of this "layer"'s hidden states (HiddenStates).
void give_hidden(const Pass& p, int layer, const TensorView& x);
// Ends a layer whose result is t.x: passes it to the consumers of its hidden states.
void layer_done(const Pass& p, int layer);

}  // namespace ibid
