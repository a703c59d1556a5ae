// The gpt shape: norms that subtract the mean and have biases before each part, and a feed-forward without a gate;
// positions by RoPE or by a learned row that is added to the embedding.
// gpt-2, nemotron.
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
    TensorView weight, bias;  // [C]
  };
  struct Layer {
    Norm attn_norm, ffn_norm;
    AttentionWeights attention;
    Linear up, down;  // [F, C], [C, F]
  };

  explicit GptModel(Parts parts) : Model(std::move(parts)) {
    position_rows_.reserve(static_cast<size_t>(options().step_tokens));
  }
  Status load_weights(WeightLoader& loader);
  Status load_norm(WeightLoader& loader, const std::string& name, int64_t l, Norm& out);
  std::unique_ptr<Model> part(Parts parts, std::span<const int32_t> kept) const override;
  void run(Pass& p) override;
  void norm(const Pass& p, const Norm& w) const;            // t.h = norm(t.x)
  void add_positions(const Pass& p);                        // to t.x; writes t.h
  void feed_forward(const Pass& p, const Layer& w, int l);  // t.h -> t.out; writes t.up

  VocabularyWeights vocabulary_;
  TensorView output_norm_bias_;  // [C]
  Weight positions_;             // [context, C], where they are learned
  std::vector<Layer> layers_;
  std::vector<TokenId> position_rows_;  // of a step's tokens
};

}  // namespace ibid
