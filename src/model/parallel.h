// The parallel shape: attention and a gated feed-forward with SiLU read the same norm of the residual stream, and both
// are added to it; norms subtract the mean and have no bias.
// command-r7b (cohere 2).
#pragma once

#include <memory>
#include <vector>

#include "model/blocks.h"
#include "model/model.h"

namespace ibid {

class ParallelModel final : public Model {
 public:
  static Result<std::unique_ptr<Model>> load(Parts parts, WeightLoader& loader);
  const VocabularyWeights* vocabulary() const override { return &vocabulary_; }

 private:
  struct Layer {
    TensorView norm;  // [C]
    AttentionWeights attention;
    FfnWeights ffn;
  };

  explicit ParallelModel(Parts parts) : Model(std::move(parts)) {}
  Status load_weights(WeightLoader& loader);
  std::unique_ptr<Model> part(Parts parts, std::span<const int32_t> kept) const override;
  void run(Pass& p) override;

  VocabularyWeights vocabulary_;
  TensorView no_bias_;  // [C] of zeros
  std::vector<Layer> layers_;
};

}  // namespace ibid
