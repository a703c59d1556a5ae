// The gemma 3 shape: norms on both sides of attention and of feed-forward, norms of q's and k's heads, two RoPEs
// (layers with a window and layers without), a gated feed-forward with GELU (tanh form), scaled embeddings, soft caps.
// gemma 3, glm-4 (SiLU, no norms of heads), muse glimmer (SiLU, gated attention).
#pragma once

#include <memory>
#include <vector>

#include "model/blocks.h"
#include "model/model.h"

namespace ibid {

class GemmaModel final : public Model {
 public:
  static Result<std::unique_ptr<Model>> load(Parts parts, WeightLoader& loader);
  const VocabularyWeights* vocabulary() const override { return &vocabulary_; }

 private:
  struct Layer {
    TensorView attn_norm, post_attn_norm, ffn_norm, post_ffn_norm;  // [C]
    AttentionWeights attention;
    FfnWeights ffn;
  };

  explicit GemmaModel(Parts parts) : Model(std::move(parts)) {}
  Status load_weights(WeightLoader& loader);
  std::unique_ptr<Model> part(Parts parts, std::span<const int32_t> kept) const override;
  void run(Pass& p) override;

  VocabularyWeights vocabulary_;
  std::vector<Layer> layers_;
};

}  // namespace ibid
