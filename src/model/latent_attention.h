// Latent attention (DeepSeek-V2, arXiv 2405.04434, sections 2.1.2 and 2.1.3): a token keeps one row, which is the key
// of all heads and begins with their value. R: the values of the row that do not turn (LayerConfig::value_len), turn:
// those that do (key_len - value_len), plain: as many of a head's query that do not turn (plain_len), V: a head's
// output (out_len), Q: the rank of queries (ModelConfig::q_rank).
//
//   row     = [norm(c) | rope(k)]                       [c | k] = kv_a x, of R and turn values
//   q_h     = [plain | turn] of q_b norm(q_a x), or of one product of x
//   query_h = [k_b,h q_h plain | rope(q_h turn)]        k_b,h [R, plain]: a head's keys are k_b,h^T c
//   out     = output [v_b,h attention_h]                v_b,h [V, R]: a head's values are v_b,h c
//
// The up-projections of keys and values are part of queries and outputs ("absorbed"): none runs over what is cached.
// The scores are those of the expanded keys as what turns is apart from what is absorbed: a rotation between q and k_b
// would depend on the distance.
#pragma once

#include <vector>

#include "base/result.h"
#include "model/blocks.h"

namespace ibid {

struct LatentWeights {
  Linear q_a, q_b;          // [Q, C], [H (plain + turn), Q]
  Linear q;                 // or, of Q 0, [H (plain + turn), C]
  Linear kv_a;              // [R + turn, C]
  TensorView q_norm;        // [Q], where there is q_a
  TensorView kv_norm;       // [R]
  std::vector<Weight> k_b;  // of each head [R, plain]
  std::vector<Weight> v_b;  // of each head [V, R]
  Linear output;            // [C, H V]
};
Status load_latent(WeightLoader& loader, const ModelConfig& config, int64_t layer, LatentWeights& out);

// As attention_block and attention_output (model/blocks.h) for layers of Mixer::kLatent. x[T, C] -> t.attention, of R
// for each head; writes t.k (rows), t.q, t.latent and the layer's cache.
void latent_block(Pass& p, const LatentWeights& w, const TensorView& x, int layer);
// t.attention -> t.out; writes t.latent.
void latent_output(Pass& p, const LatentWeights& w, int layer);

}  // namespace ibid
