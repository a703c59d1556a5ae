// EagleHead: a draft head with attention of its own. It goes over pairs: pair P is what the target made of token P and
// the token after it, and says the token after that. It keeps a key and a value of each pair.
//
// EAGLE-1 and -2 (Li et al., "EAGLE: Speculative Sampling Requires Rethinking Feature Uncertainty", 2024, section 3):
//     state = what the target's final norm makes of token P
//     x = fc [embedding of token P + 1; state]; one decoder layer without a norm before its attention
//     logits = the target's outputs of x
// EAGLE-3 (Li et al., "EAGLE-3: Scaling up Inference Acceleration of Large Language Models via Training-Time Test",
// 2025, section 3.1):
//     state = fc [three of the target's layers' inputs at token P], through norms before fc where the file has some:
//             one over all three (`norm_before_fc`) or one for each (`fc_norm`)
//     x = state; one decoder layer whose attention reads [norm(embedding of token P + 1); norm(state)]
//     logits = its own outputs, which may be of fewer tokens, of norm(x)
// After a draft, x stands in the place of what the target has not made yet.
//
// The layer that a checkpoint brings along to draft further tokens (MTP) is a head of its own kind (spec/mtp_layer.h).
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
#include "model/blocks.h"
#include "model/model.h"
#include "model/rope.h"
#include "model/scratch.h"
#include "tensor/stream.h"
#include "worker/kv_store.h"

namespace ibid {

struct EagleSizes {
  int32_t n_texts = 8;     // those of a pass
  int32_t n_rows = 0;      // R: rows of logits of a pass; 0: one for each sequence
  int32_t n_tokens = 256;  // T of the largest pass
  int32_t n_blocks = 0;    // of its keys and values
  int32_t block_len = 16;  // B
  DType kv_dtype = DType::kF16;
  int32_t context_len = 0;    // pairs of a sequence at most
  int32_t step_tokens = 512;  // of the target's largest step
  int32_t most_rows() const { return n_rows > 0 ? n_rows : n_texts; }
};

// What a head's file says of it, as the target completes it.
struct EagleForm {
  enum class Kind : uint8_t { kFirst, kThird, kMtp };  // EAGLE-1 and -2, EAGLE-3, an MTP layer
  Kind kind = Kind::kFirst;
  bool hidden_first = false;        // of an MTP layer: fc reads the state before the embedding
  bool residual_is_normed = false;  // norm_before_residual
  bool state_is_normed = false;     // norm_output
  ModelConfig layer;                // the decoder layer; scale and soft cap are those of the vocabulary that it uses
  std::vector<int32_t> tap_layers;  // what it reads of the target, as HiddenStates counts layers
  std::vector<TokenId> ids;         // what the columns of logits stand for, ascending; empty: all ids of the target
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

  bool is_third() const { return form_.kind == EagleForm::Kind::kThird; }    // EAGLE-3
  int32_t width() const { return static_cast<int32_t>(form_.layer.width); }  // C of a state
  // What the columns of logits stand for, ascending; empty: all ids of the target.
  const std::vector<TokenId>& ids() const { return form_.ids; }
  const EagleSizes& sizes() const { return sizes_; }

  // A piece of the memory of its largest pass, in idle times. Whether there was one left.
  bool take_next() { return whole_.memory.take_next(); }
  // What it reads of the target: a step's hidden states are written to these, [step_tokens, the target's C] each.
  const HiddenStates& taps() const { return taps_; }
  // Of one token, what the taps have, side by side.
  int32_t feature_len() const { return static_cast<int32_t>(rows_.features.row_len()); }
  void copy_feature(int32_t tap_row, std::span<float> to) const;

  // Row `row` of the next pass, to be written: what the target made of its token, [feature_len]; then fuse() makes
  // states of the first n, after which it is gone. Or the state itself, [C].
  std::span<float> feature(int32_t row);
  void fuse(int32_t n);
  std::span<float> state(int32_t row);

  struct Said {
    std::span<const float> logits;  // [R, ids or V]
    std::span<const float> states;  // [R, C]: of the pairs after the drafts
  };
  // A pass over pairs: `batch` has the second token of each and their places among the sequence's pairs, and wants at
  // most R rows. Without any only keys and values are computed. Valid until the next call.
  Said run(const ForwardBatch& batch);

 private:
  // The blocks of its layer (model/blocks.h), and what stands before and after them. Rank 0: the kind has no such norm.
  struct Weights {
    std::vector<TensorView> feature_norms;  // of equal parts of the features, before fc; empty: none
    Linear fc;
    TensorView token_norm, state_norm;  // [C], of both halves of the inputs
    TensorView attention_norm;          // [C], of an MTP layer
    AttentionWeights attention;
    TensorView ffn_norm;  // [C]
    FfnWeights ffn;
    VocabularyWeights vocabulary;  // the target's where it has none of its own
    std::vector<std::unique_ptr<float[]>> copies;
  };
  // Of its largest pass, in the scratch's memory.
  struct Rows {
    TensorView inputs;    // [T, 2 C] token and state, side by side
    TensorView states;    // [T, C] where the layer begins: EAGLE-1's half of the inputs, else the scratch's x
    TensorView features;  // [T, feature_len]; but for EAGLE-3 the states
    TensorView logits;    // [R, ids or V]
    std::vector<TensorView> taps;
  };
  class Loader;

  explicit EagleHead(Stream& stream) : stream_(stream) {}
  TensorView attention_input(Pass& p);

  std::shared_ptr<const ModelFile> file_;
  Stream& stream_;
  EagleSizes sizes_;
  EagleForm form_;
  Weights weights_;
  RopeTable rope_;
  Scratch whole_, step_;  // of the largest pass, and cut to one
  Rows rows_;
  std::vector<int32_t> every_token_;  // [T] 0, 1, 2, ...
  HiddenStates taps_;
  std::unique_ptr<KvStore> kv_;
};

}  // namespace ibid
