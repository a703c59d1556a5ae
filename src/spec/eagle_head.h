// EagleHead: a draft head with attention of its own. It goes over pairs: pair P is what the target made of token P and
// the token behind it, and says the token after that. It keeps a key and a value of each pair.
//
// EAGLE-1 and -2 (Li et al., "EAGLE: Speculative Sampling Requires Rethinking Feature Uncertainty", 2024, section 3):
//     state = what the target's final norm makes of token P
//     x = fc [embedding of token P + 1; state]; one decoder layer without a norm before its attention
//     logits = the target's outputs of x
// EAGLE-3 (Li et al., "EAGLE-3: Scaling up Inference Acceleration of Large Language Models via Training-Time Test",
// 2025, section 3.1):
//     state = fc [three of the target's layers' inputs at token P], through norms before fc where the file has some:
//     one
//             over all three (`norm_before_fc`) or one for each (`fc_norm`)
//     x = state; one decoder layer whose attention reads [norm(embedding of token P + 1); norm(state)]
//     logits = its own outputs, which may be of fewer tokens, of norm(x)
// Behind a draft, x stands in the place of what the target has not made yet.
//
// The layer that a checkpoint brings along to guess further tokens (MTP) is a head of its own kind (spec/mtp_layer.h).
//
// Files: a folder of safetensors with a config.json, under the names of the papers' programs; a GGUF of architecture
// "eagle" with the same names and keys (tools/pack_eagle.py); or one of architecture "eagle3", as llama.cpp's converter
// names things (model/draft_layer.h). Layer numbers of `eagle_aux_hidden_state_layer_ids` and `eagle3.target_layers`
// are those of the papers' programs: the input of layer i; without them 2, L / 2 and L - 3.
//
// One thread; its ops use the stream's team. All memory is held from the start.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "format/model_file.h"
#include "kernels/forward_batch.h"
#include "kernels/weight.h"
#include "model/model.h"
#include "model/rope.h"
#include "tensor/buffer.h"
#include "tensor/stream.h"
#include "worker/kv_store.h"

namespace ibid {

struct EagleSizes {
  int32_t n_texts = 8;     // those of a pass
  int32_t n_rows = 0;      // R: rows of logits of a pass; 0: one for each text
  int32_t n_tokens = 256;  // T of the largest pass
  int32_t n_blocks = 0;    // of its keys and values
  int32_t block_len = 16;  // B
  DType kv_dtype = DType::kF16;
  int32_t context_len = 0;    // pairs of a text at most
  int32_t step_tokens = 512;  // of the target's largest step
  int32_t most_rows() const { return n_rows > 0 ? n_rows : n_texts; }
};

class EagleHead {
 public:
  // Checks that the head is of the target's width, layers and vocabulary; a wrong target of the same shape shows in
  // what is accepted alone. `target` and `stream` outlive it.
  static Result<std::unique_ptr<EagleHead>> load(std::shared_ptr<const ModelFile> file, const Model& target,
                                                 Stream& stream, const EagleSizes& sizes);
  // What load() would hold, keys and values included.
  static Result<int64_t> sized_bytes(const ModelFile& file, const Model& target, const Stream& stream,
                                     const EagleSizes& sizes);
  // Of one block of its keys and values.
  static Result<int64_t> block_bytes(const ModelFile& file, const Model& target, const Stream& stream,
                                     const EagleSizes& sizes);

  bool is_third() const { return is_third_; }  // EAGLE-3
  int32_t width() const { return width_; }     // C of a state
  // What the columns of logits stand for, ascending; empty: all ids of the target.
  const std::vector<TokenId>& ids() const { return ids_; }
  const EagleSizes& sizes() const { return sizes_; }

  // A piece of the memory of its largest pass, in idle times. Whether there was one left.
  bool take_next() { return memory_.take_next(); }
  // What it reads of the target: a step's hidden states are written to these, [step_tokens, the target's C] each.
  const HiddenStates& taps() const { return taps_; }
  // Of one token, what the taps have, side by side.
  int32_t feature_len() const { return feature_len_; }
  void copy_feature(int32_t tap_row, std::span<float> to) const;

  // Row `row` of the next pass, to be written: what the target made of its token, [feature_len]; then fuse() makes
  // states of the first n, after which it is gone. Or the state itself, [C].
  std::span<float> feature(int32_t row);
  void fuse(int32_t n);
  std::span<float> state(int32_t row);

  struct Said {
    std::span<const float> logits;  // [R, ids or V]
    std::span<const float> states;  // [R, C]: of the pairs behind the drafts
  };
  // A pass over pairs: `batch` has the second token of each and their places among the text's pairs, and wants at most
  // R rows. Without any only keys and values are computed. Valid until the next call.
  Said run(const ForwardBatch& batch);

 private:
  struct Product {
    Weight weight;
    TensorView bias;  // rank 0: none
  };
  struct Rows {  // of a pass, the largest
    TensorView features, states, inputs, x, h, q, k, v, attention, gate, up, out, wanted, normed, logits, cos_sin;
    std::vector<TensorView> taps;
  };
  class Loader;

  EagleHead(const Model& target, Stream& stream) : target_(target), stream_(stream) {}
  void product(const TensorView& out, const Product& w, const TensorView& x);
  void embed(const ForwardBatch& batch, const TensorView& out);
  void norm_heads(const TensorView& x, const TensorView& weight);
  struct Inputs {
    TensorView read;  // what the attention reads, [T, C or 2 C]
    TensorView x;     // [T, C] the layer's own
  };
  Inputs read(const ForwardBatch& batch);
  void answer(const ForwardBatch& batch, const TensorView& read, const TensorView& x);
  Said say(const ForwardBatch& batch, const TensorView& x);

  std::shared_ptr<const ModelFile> file_;
  const Model& target_;
  Stream& stream_;
  EagleSizes sizes_;
  ModelConfig config_;  // of its layer
  RopeTable rope_;
  bool is_third_ = false;
  bool is_mtp_ = false;
  bool hidden_first_ = false;        // of an MTP layer: fc reads the state before the embedding
  bool residual_is_normed_ = false;  // norm_before_residual
  bool state_is_normed_ = false;     // norm_output
  int32_t width_ = 0, feature_len_ = 0, n_outputs_ = 0;
  Weight embedding_;  // n_outputs 0: the target's
  Product fc_, q_, k_, v_, o_, gate_, up_, down_;
  Product output_;              // n_outputs 0: the target's
  TensorView embed_norm_;       // of an MTP layer
  TensorView q_norm_, k_norm_;  // [D], of each head; rank 0: none
  TensorView input_norm_, hidden_norm_, ffn_norm_, norm_;
  std::vector<TensorView> feature_norms_;  // of equal parts of the features, before fc; empty: none
  std::vector<TokenId> ids_;
  std::vector<std::unique_ptr<float[]>> copies_;
  std::vector<int32_t> tap_layers_;
  HiddenStates taps_;
  Buffer memory_;
  Rows rows_;
  std::unique_ptr<KvStore> kv_;
};

}  // namespace ibid
