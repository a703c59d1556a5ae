// The gemma 4 shape: gemma's norms on both sides, values with a norm of their own, layers of different sizes that may
// read another's keys and values, experts beside the dense feed-forward, and of each token a row of an embedding for
// each layer.
//
// A layer, after gemma's attention (model/gemma.h); norm() without a name has no weight:
//   y = ffn(ffn_norm(x))
//   with experts: y = post_norm_1(y) + post_norm_2(experts(pre_norm_2(x))), chosen by router(router_norm(x))
//   x += post_ffn_norm(y)
//   with layer embeddings: x += post_norm(projection(gelu(gate(x)) * e_l))
//   x *= output_scale
// e of all layers: (embedding_norm(projection(x_0) C^-1/2) + table[token] P^1/2) 2^-1/2, x_0 the scaled embeddings.
#pragma once

#include <memory>
#include <vector>

#include "model/blocks.h"
#include "model/model.h"
#include "model/moe.h"

namespace ibid {

class Gemma4Model final : public Model {
 public:
  static Result<std::unique_ptr<Model>> load(Parts parts, WeightLoader& loader);
  const VocabularyWeights* vocabulary() const override { return &vocabulary_; }

 private:
  struct ExpertNorms {
    TensorView router_norm;                           // [C] the router's scale, times C^-1/2
    TensorView post_norm_1, pre_norm_2, post_norm_2;  // [C]
  };
  // Of a layer's rows in the embedding.
  struct LayerEmbedding {
    int64_t first_column = 0;  // in e
    Linear gate, projection;   // [P, C], [C, P]
    TensorView post_norm;      // [C]
  };
  struct Layer {
    TensorView attn_norm, post_attn_norm, ffn_norm, post_ffn_norm;  // [C]
    AttentionWeights attention;
    FfnWeights ffn;
    MoeWeights experts;  // where the layer has some
    ExpertNorms norms;
    LayerEmbedding embedding;
    float output_scale = 1.0f;
  };

  explicit Gemma4Model(Parts parts) : Model(std::move(parts)) {}
  Status load_weights(WeightLoader& loader);
  Status load_layer_embedding(WeightLoader& loader, int64_t l, LayerEmbedding& out);
  std::unique_ptr<Model> part(Parts parts, std::span<const int32_t> kept) const override;
  void run(Pass& p) override;
  // t.x, the embeddings -> t.layer_embedding.all, of all T tokens.
  void embed_for_layers(Pass& p);
  // t.out, what the dense feed-forward gives, and t.x -> t.out; writes t.h.
  void add_experts(Pass& p, const Layer& w, int l);
  // Adds to t.x; writes t.out.
  void add_layer_embedding(Pass& p, const LayerEmbedding& w, int l);

  VocabularyWeights vocabulary_;
  Weight table_;               // [V, L P], read where it lies in the file
  Linear projection_;          // [L P, C]
  TensorView embedding_norm_;  // [P]
  std::vector<Layer> layers_;
};

}  // namespace ibid
