// The llama shape: pre-norm blocks, rotary attention over grouped heads, latent attention or a recurrent mixer in its
// place or beside it, a gated feed-forward with SiLU or one without a gate, of which a layer has one or many (experts).
// Both parts in each layer, or one of them (ModelConfig::one_part_layers).
// llama, mistral, smollm, qwen2, qwen3, smollm3, phi-3, gpt-oss, lfm2, qwen3next, qwen3.5, deepseek, granite,
// nemotron-h.
#pragma once

#include <memory>
#include <vector>

#include "model/blocks.h"
#include "model/delta_net.h"
#include "model/latent_attention.h"
#include "model/mamba2.h"
#include "model/model.h"
#include "model/moe.h"
#include "model/short_conv.h"

namespace ibid {

class LlamaModel final : public Model {
 public:
  static Result<std::unique_ptr<Model>> load(Parts parts, WeightLoader& loader);
  // Of one layer, with the final norm and the outputs of another model (load_layer).
  static Result<std::unique_ptr<Model>> load_layer(Parts parts, WeightLoader& loader, const VocabularyWeights& ends);
  const VocabularyWeights* vocabulary() const override { return &vocabulary_; }

 private:
  struct Layer {
    TensorView attn_norm, ffn_norm;  // [C]; the first alone where the layer has one part
    TensorView next_norm;            // [C] attn_norm of the next layer; of the last one: the final norm
    AttentionWeights attention;
    LatentWeights latent;         // of a layer of Mixer::kLatent, in its place
    ShortConvWeights short_conv;  // of a layer with such a mixer, which has no attention
    DeltaNetWeights delta_net;    // likewise
    Mamba2Weights mamba2;         // likewise, or beside attention
    FfnWeights ffn;               // of a layer without experts
    MoeWeights experts;           // of one with experts
  };

  explicit LlamaModel(Parts parts) : Model(std::move(parts)) {}
  Status load_layers(WeightLoader& loader);
  Status load_mixer(WeightLoader& loader, int64_t layer, Layer& out) const;
  std::unique_ptr<Model> part(Parts parts, std::span<const int32_t> kept) const override;
  void link_norms();
  // t.h -> t.x, to which it adds what the layer's recurrence beside attention gives.
  static void add_beside(Pass& p, const Layer& w, int l);
  // t.h -> t.x, t.h after the next norm. False where nothing goes on.
  static bool mix(Pass& p, const Layer& w, int l);
  static void feed_forward(Pass& p, const Layer& w, int l);
  static void add_picture_rows(const Pass& p, const Layer& w, int l);
  // t.h -> t.attention, by the layer's mixer; its last product.
  static const Linear& run_mixer(Pass& p, const Layer& w, int l);
  void run(Pass& p) override;

  VocabularyWeights vocabulary_;
  std::vector<Layer> layers_;
};

}  // namespace ibid
