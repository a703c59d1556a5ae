// The gpt shape: norms that subtract the mean before each part, and a feed-forward without a gate; positions by RoPE,
// by a learned row that is added to the embedding, or by slopes of heads. gpt-2, nemotron, bloom, mpt.
#pragma once

#include <memory>
#include <vector>

#include "model/blocks.h"
#include "model/model.h"

namespace ibid {

class GptModel final : public Model {
 public:
  static Result<std::unique_ptr<Model>> load(Parts parts, WeightLoader& loader);
  const VocabularyWeights* vocabulary() const override { return &vocabulary_; }

 private:
  struct Norm {
    TensorView weight, bias;  // [C]; zeros where the model has no biases
  };
  struct Layer {
    Norm attn_norm, ffn_norm;
    AttentionWeights attention;
    FfnWeights ffn;
  };

  explicit GptModel(Parts parts) : Model(std::move(parts)) {
    position_rows_.reserve(static_cast<size_t>(options().step_tokens));
  }
  Status load_weights(WeightLoader& loader);
  Status load_norm(WeightLoader& loader, const std::string& name, int64_t l, Norm& out);
  Status load_bias(WeightLoader& loader, const std::string& name, int64_t l, TensorView& out);
  std::unique_ptr<Model> part(Parts parts, std::span<const int32_t> kept) const override;
  void run(Pass& p) override;
  void norm(const Pass& p, const Norm& w) const;  // t.h = norm(t.x)
  void add_positions(const Pass& p);              // to t.x; writes t.h

  VocabularyWeights vocabulary_;
  TensorView output_norm_bias_;  // [C]
  Norm embedding_norm_;          // where embeddings have one
  Weight positions_;             // [context, C], where they are learned
  std::vector<Layer> layers_;
  std::vector<TokenId> position_rows_;  // of a step's tokens
};

}  // namespace ibid
