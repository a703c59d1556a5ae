// The shape of BERT (Devlin et al. 2019): an encoder. A text runs whole in one step and each of its tokens sees all of
// it, so nothing is kept between steps: keys and values of one layer lie in memory of the step, and forward() gets no
// KV. Positions and token types are learned embeddings; norms stand after attention and feed-forward, with biases.
//
// What it gives are hidden states, layer L's as they are, as no norm follows. With a head (a cross-encoder), a row of
// "logits" is the scores of its token, which is to be a text's first: [n_labels] in its first columns, the others
// undefined.
#pragma once

#include <memory>
#include <vector>

#include "kernels/batch_arrays.h"
#include "model/blocks.h"
#include "model/model.h"

namespace ibid {

class BertModel final : public Model {
 public:
  static Result<std::unique_ptr<Model>> load(Parts parts, WeightLoader& loader);

 private:
  static constexpr int32_t kBlockLen = 16;

  struct Norm {
    TensorView weight, bias;  // [C]
  };
  struct Layer {
    AttentionWeights attention;
    Norm attn_norm;
    Linear up, down;  // [F, C], [C, F]
    Norm output_norm;
  };

  explicit BertModel(Parts parts) : Model(std::move(parts)) {}
  Status load_weights(WeightLoader& loader);
  Status load_head(WeightLoader& loader);
  Status make_room(const DeviceMemory& memory);
  void lay_out(const ForwardBatch& batch);
  void embed(const Pass& p);
  void attention(const Pass& p, const Layer& w, int l);
  void feed_forward(const Pass& p, const Layer& w, int l);
  void add_norm(const Pass& p, const Norm& w) const;  // t.x = norm(t.x + t.out)
  void score(Pass& p);
  void run(Pass& p) override;

  Weight tokens_, positions_, types_;  // [V, C], [context, C], [n_token_types, C]
  Norm embedding_norm_;
  std::vector<Layer> layers_;
  Linear dense_, labels_;  // the head: [C, C], then tanh; [n_labels, C]

  // One layer's keys and values of a step, each text in blocks of its own, and the batch that describes them: all
  // queries of a text stand at its last position, so that kernels written for growing sequences let each see the whole.
  Buffer room_;
  PagedKv kv_;
  BatchArrays arrays_{kBlockLen, {}};
  ForwardBatch step_;            // views into arrays_
  std::vector<BlockId> blocks_;  // of the room, in their order
  std::vector<TokenId> position_rows_, type_rows_;
};

}  // namespace ibid
