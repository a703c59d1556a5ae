// The post-norm shape: attention and feed-forward read the residual stream as it is, and what they give is normed
// before it is added; norms of q and k, a gated feed-forward. olmo 2, olmo 3, exaone 4.
#pragma once

#include <memory>
#include <vector>

#include "model/blocks.h"
#include "model/model.h"

namespace ibid {

class PostNormModel final : public Model {
 public:
  static Result<std::unique_ptr<Model>> load(Parts parts, WeightLoader& loader);
  const VocabularyWeights* vocabulary() const override { return &vocabulary_; }

 private:
  struct Layer {
    TensorView post_attn_norm, post_ffn_norm;  // [C]
    AttentionWeights attention;
    FfnWeights ffn;
  };

  explicit PostNormModel(Parts parts) : Model(std::move(parts)) {}
  Status load_weights(WeightLoader& loader);
  std::unique_ptr<Model> part(Parts parts, std::span<const int32_t> kept) const override;
  void run(Pass& p) override;

  VocabularyWeights vocabulary_;
  std::vector<Layer> layers_;
};

}  // namespace ibid
