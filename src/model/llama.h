// The llama shape: pre-norm blocks, rotary attention over grouped heads, a gated feed-forward with SiLU.
// llama, mistral, smollm, qwen2, qwen3, smollm3, phi-3.
#pragma once

#include <memory>
#include <vector>

#include "model/model.h"
#include "model/weights.h"

namespace ibid {

class LlamaModel final : public Model {
 public:
  static Result<std::unique_ptr<Model>> load(Parts parts, WeightLoader& loader);

 private:
  struct Layer {
    TensorView attn_norm, ffn_norm;     // [C]
    Weight wq, wk, wv;                  // [H D, C], [K D, C] twice; or wqkv
    Weight wqkv;                        // [(H + 2 K) D, C]
    TensorView q_bias, k_bias, v_bias;  // where config.qkv_bias
    TensorView q_norm, k_norm;          // [D], where config.qk_norm
    Weight wo;                          // [C, H D]
    Weight w_gate, w_up;                // [F, C]; or w_gate_up
    Weight w_gate_up;                   // [2 F, C]
    Weight w_down;                      // [C, F]
  };

  explicit LlamaModel(Parts parts) : Model(std::move(parts)) {}
  Status load_weights(WeightLoader& loader);
  Status load_layer(WeightLoader& loader, int64_t l, Layer& layer);
  void run(Stream& s, const ForwardBatch& batch, std::span<const PagedKv> kv, const TensorView& logits) override;
  void attend(Stream& s, const ForwardBatch& batch, const PagedKv& kv, int l);

  Weight embedding_;        // [V, C]
  Weight output_;           // [V, C], where not tied
  TensorView output_norm_;  // [C]
  std::vector<Layer> layers_;
  Scratch t_;  // this step's
};

}  // namespace ibid
