// EagleHead: a draft head with attention of its own. It processes pairs: pair P is the target's hidden state of token P
// and the token after it, and predicts the token after that. It stores a key and a value per pair.
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
// After a draft, x replaces the state that the target has not computed yet.
//
// A checkpoint's own layer for drafting further tokens (MTP) is another kind of head, whose layer is of the model's
// kind (spec/heads/mtp_layer.h).
//
// Files: a folder of safetensors with a config.json, with the tensor names of the papers' programs; a GGUF of
// architecture "eagle" with the same names and keys (tools/pack_eagle.py); or a GGUF of architecture "eagle3", with the
// names of llama.cpp's converter (model/draft_layer.h). Layer numbers of `eagle_aux_hidden_state_layer_ids` and
// `eagle3.target_layers` are those of the papers' programs: the input of layer i; by default 2, L / 2 and L - 3.
//
// One thread; its ops use the stream's team. All memory is allocated by load().
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
  int32_t n_sequences = 8;  // sequences of a pass
  int32_t n_rows = 0;       // R: rows of logits of a pass; 0: one per sequence
  int32_t n_tokens = 256;   // T of the largest pass
  int32_t n_kept = 0;       // rows of features that are kept between passes
  int32_t n_blocks = 0;     // for its keys and values
  int32_t block_len = 16;   // B
  KvTypes kv_dtype;
  int32_t context_len = 0;    // maximum pairs of a sequence
  int32_t step_tokens = 512;  // tokens of the target's largest step
  int32_t most_rows() const { return n_rows > 0 ? n_rows : n_sequences; }
};

// A head's form, from its file and the target.
struct EagleForm {
  enum class Kind : uint8_t { kFirst, kThird, kMtp };  // EAGLE-1 and -2, EAGLE-3, an MTP layer
  Kind kind = Kind::kFirst;
  bool hidden_first = false;        // for an MTP layer: fc reads the state before the embedding
  bool residual_is_normed = false;  // norm_before_residual
  bool state_is_normed = false;     // norm_output
  ModelConfig layer;                // the decoder layer; scale and soft cap belong to the vocabulary that it uses
  std::vector<int32_t> tap_layers;  // the target's layers that it reads, counted as in HiddenStates
  std::vector<TokenId> ids;         // token ids of the columns of logits, ascending; empty: all ids of the target
};

class EagleHead {
 public:
  // Checks that the head matches the target's width, layers and vocabulary; a wrong target of the same shape shows only
  // in the acceptance rate. `target` and `stream` outlive the head.
  static Result<std::unique_ptr<EagleHead>> load(std::shared_ptr<const ModelFile> file, const Model& target,
                                                 Stream& stream, const EagleSizes& sizes);
  // Bytes that load() would allocate, keys and values included.
  static Result<int64_t> sized_bytes(const ModelFile& file, const Model& target, Stream& stream,
                                     const EagleSizes& sizes);
  // Bytes of one block of its keys and values.
  static Result<int64_t> block_bytes(const ModelFile& file, const Model& target, Stream& stream,
                                     const EagleSizes& sizes);

  bool is_third() const { return form_.kind == EagleForm::Kind::kThird; }    // EAGLE-3
  int32_t width() const { return static_cast<int32_t>(form_.layer.width); }  // C of a state
  // Token ids of the columns of logits, ascending; empty: all ids of the target.
  const std::vector<TokenId>& ids() const { return form_.ids; }
  const EagleSizes& sizes() const { return sizes_; }

  // Touches a piece of the memory of the largest pass; called when idle. Returns whether there was one left.
  bool take_next() { return whole_.memory.take_next(); }
  // The target's hidden states that the head reads: a step writes them to these buffers, [step_tokens, the target's C]
  // each.
  const HiddenStates& taps() const { return taps_; }
  // One token's values of all taps, concatenated.
  int32_t feature_len() const { return static_cast<int32_t>(rows_.features.row_len()); }

  // Rows of features kept between passes, [n_kept, feature_len]. Row kept[i] becomes the features of the step's row
  // tap_rows[i]; no row of `kept` twice.
  void keep_features(std::span<const int32_t> tap_rows, std::span<const int32_t> kept);
  void move_kept(int32_t from, int32_t to);

  // The rows of the next pass, [feature_len]: row i becomes kept[i]. fuse(n) turns the first n into states, [C],
  // overwriting them.
  void load_features(std::span<const int32_t> kept);
  void fuse(int32_t n);
  // Row i becomes the state of row result_rows[i] of the last pass.
  void load_states(std::span<const int32_t> result_rows);
  // Those rows themselves, where the host can write them: for tests.
  TensorView features() const { return rows_.features; }
  TensorView states() const { return rows_.states; }

  struct PassResult {
    std::span<const float> logits;  // [R, ids or V], where the host reads them
    TensorView states;              // [R, C]: states of the pairs after the drafts
  };
  // Runs a pass over pairs: `batch` has each pair's second token and its position among the sequence's pairs, and at
  // most R rows of logits. With no rows, only keys and values are computed. Valid until the next call.
  PassResult run(const ForwardBatch& batch);

 private:
  // The weights of its layer (model/blocks.h), and of what comes before and after. Rank 0: the kind has no such norm.
  struct Weights {
    std::vector<TensorView> feature_norms;  // for equal parts of the features, before fc; empty: none
    Linear fc;
    TensorView token_norm, state_norm;  // [C], for the two halves of the inputs
    AttentionWeights attention;
    TensorView ffn_norm;  // [C]
    FfnWeights ffn;
    VocabularyWeights vocabulary;  // the target's if it has none of its own
    std::vector<std::unique_ptr<float[]>> copies;
  };
  // Rows of the largest pass, in the scratch's memory.
  struct Rows {
    TensorView inputs;    // [T, 2 C] token and state, concatenated
    TensorView states;    // [T, C] input of the layer: half of the inputs for EAGLE-1, else the scratch's x
    TensorView features;  // [T, feature_len]; the states, except for EAGLE-3
    TensorView kept;      // [n_kept, feature_len]
    TensorView logits;    // [R, ids or V]
    std::vector<TensorView> taps;
  };
  class Loader;

  explicit EagleHead(Stream& stream) : stream_(stream) {}
  TensorView attention_input(Pass& p);
  void run_own_layer(Pass& p);
  void run_models_layer(Pass& p);

  std::shared_ptr<const ModelFile> file_;
  Stream& stream_;
  EagleSizes sizes_;
  EagleForm form_;
  Weights weights_;
  std::unique_ptr<Model> layer_;  // of an MTP layer; its weights_ have no layer
  RopeTable rope_;
  Scratch whole_, step_;  // for the largest pass, and resized for the current one
  Rows rows_;
  std::vector<int32_t> every_token_;  // [T] 0, 1, 2, ...
  HiddenStates taps_;
  TensorView result_states_;           // of the last pass
  std::vector<float> logits_on_host_;  // as many as rows_.logits where the stream copies to the host
  std::unique_ptr<KvStore> kv_;
};

}  // namespace ibid
