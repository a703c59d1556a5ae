// DraftHeads: small networks after a target's final norm that say the tokens after its next one. Head i says token
// t + 2 + i from the target's hidden state of token t and, where it is "grounded", the embeddings of tokens t + 1 to
// t + 1 + i (Cai et al., "Medusa: Simple LLM Inference Acceleration Framework with Multiple Decoding Heads", 2024;
// Ankner et al., "Hydra: Sequentially-Dependent Draft Heads for Medusa Decoding", 2024):
//     x = the hidden state [C], or it and the embeddings side by side [(i + 2) C]
//     x = skip(x) + SiLU(linear(x)) for each layer; skip is a product where the width changes, else nothing
//     logits = a head's own outputs of x, or the target's, of the tokens that the file lists
// Nothing is kept of a sequence but the hidden state of its last row: no cache, nothing to compute after a prefix hit,
// and nothing to undo where drafts were wrong.
//
// Files: a GGUF of architecture "hydra" or "medusa" (tools/train_heads.py writes them), or a folder of safetensors with
// a config.json, by the names that the papers' programs give.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "format/model_file.h"
#include "kernels/weight.h"
#include "model/model.h"
#include "spec/draft_tree.h"
#include "tensor/buffer.h"
#include "tensor/stream.h"

namespace ibid {

class DraftHeads {
 public:
  // Checks that the file's heads are of the target's width and vocabulary; a wrong target of the same shape shows in
  // what is accepted alone. `target` and `stream` outlive it. At most `max_rows` rows in a pass. All memory but a
  // pass's workspace, which the stream has then, is held from here on.
  static Result<std::unique_ptr<DraftHeads>> load(std::shared_ptr<const ModelFile> file, const Model& target,
                                                  Stream& stream, int32_t max_rows);
  // The tree that the file names for its heads (named_tree()): of a config.json "medusa_choices" or "hydra_choices", of
  // a GGUF "medusa.choices" or "hydra.choices", which are strings like "0,1". Empty: none.
  static Result<std::vector<DraftPlace>> read_tree(const ModelFile& file);
  // What load() would hold.
  static Result<int64_t> sized_bytes(const ModelFile& file, const Model& target, const Stream& stream,
                                     int32_t max_rows);

  int32_t n_heads() const { return static_cast<int32_t>(heads_.size()); }
  int32_t width() const { return width_; }
  // What the columns of a head's logits stand for, ascending; empty: all ids of the target.
  const std::vector<TokenId>& ids() const { return ids_; }

  // The row of the next pass that a sequence has: its hidden state, [C].
  void set_hidden(int32_t row, std::span<const float> hidden);
  void copy_hidden(int32_t from, int32_t to);
  // The token after what the row has so far: the sequence's last one, then its drafts. At most n_heads().
  void add_token(int32_t row, int32_t place, TokenId token);
  // The logits of head `i`, [rows, ids or V], of rows that have i + 1 tokens; valid until the next call.
  std::span<const float> run(int32_t i, std::span<const int32_t> rows);

 private:
  struct Layer {
    Weight linear, skip;  // skip: n_outputs 0 where there is none
    TensorView linear_bias, skip_bias;
  };
  struct Head {
    std::vector<Layer> layers;
    Weight output;           // n_outputs 0: the target's
    TensorView output_bias;  // rank 0: none
    int64_t n_inputs = 0;
  };
  class Loader;

  DraftHeads(const Model& target, Stream& stream) : target_(target), stream_(stream) {}

  std::shared_ptr<const ModelFile> file_;
  const Model& target_;
  Stream& stream_;
  int32_t width_ = 0;
  std::vector<Head> heads_;
  std::vector<TokenId> ids_;
  std::vector<std::byte> output_rows_;  // of the target's, as in its file
  Weight output_;                       // of them
  std::vector<std::unique_ptr<float[]>> copies_;
  std::vector<float> rows_;                   // [max_rows, (n_heads + 1) C]: hidden state, then embeddings
  std::vector<float> inputs_, x_, y_, ones_;  // of a pass
  std::vector<float> logits_;
};

}  // namespace ibid
