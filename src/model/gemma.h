// The gemma 3 shape: norms on both sides of attention and of feed-forward, norms of q's and k's heads, two RoPEs
// (layers with a window and layers without), a gated feed-forward with GELU (tanh form), scaled embeddings, soft caps.
#pragma once

#include <memory>
#include <vector>

#include "model/model.h"
#include "model/weights.h"

namespace ibid {

class GemmaModel final : public Model {
 public:
  static Result<std::unique_ptr<Model>> load(Parts parts, WeightLoader& loader);

 private:
  struct Layer {
    TensorView attn_norm, post_attn_norm, ffn_norm, post_ffn_norm;  // [C]
    TensorView q_norm, k_norm;                                      // [D]
    Weight wq, wk, wv;                                              // [H D, C], [K D, C] twice
    Weight wo;                                                      // [C, H D]
    Weight w_gate, w_up;                                            // [F, C]
    Weight w_down;                                                  // [C, F]
  };

  explicit GemmaModel(Parts parts) : Model(std::move(parts)) {}
  Status load_weights(WeightLoader& loader);
  void run(Stream& s, const ForwardBatch& batch, std::span<const PagedKv> kv, const TensorView& logits) override;
  void attend(Stream& s, const ForwardBatch& batch, const PagedKv& kv, int l);

  Weight embedding_;        // [V, C]
  Weight output_;           // [V, C], where not tied
  TensorView output_norm_;  // [C]
  std::vector<Layer> layers_;
  Scratch t_;  // this step's
};

}  // namespace ibid
