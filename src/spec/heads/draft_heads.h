// DraftHeads: small networks on a target's final norm that predict the tokens after its next one. Head i predicts token
// t + 2 + i from the target's hidden state of token t and, if it is "grounded", the embeddings of tokens t + 1 to t + 1
// + i (Cai et al., "Medusa: Simple LLM Inference Acceleration Framework with Multiple Decoding Heads", 2024; Ankner et
// al., "Hydra: Sequentially-Dependent Draft Heads for Medusa Decoding", 2024):
//     x = the hidden state [C], or it and the embeddings side by side [(i + 2) C]
//     x = skip(x) + SiLU(linear(x)) for each layer; skip is a product where the width changes, else nothing
//     logits = a head's own outputs of x, or the target's, of the tokens that the file lists
// Only the hidden state of a sequence's last row is kept: no cache, nothing to compute after a prefix hit, and nothing
// to undo after wrong drafts.
//
// Files: a GGUF of architecture "hydra" or "medusa" (tools/train_heads.py writes them), or a folder of safetensors with
// a config.json, with the tensor names of the papers' programs.
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
#include "spec/drawn/draft_tree.h"
#include "tensor/buffer.h"
#include "tensor/stream.h"

namespace ibid {

class DraftHeads {
 public:
  // Checks that the file's heads match the target's width and vocabulary; a wrong target of the same shape shows only
  // in the acceptance rate. `target` and `stream` outlive the heads. At most `max_rows` rows per pass. Allocates all
  // memory except a pass's workspace, which the stream provides.
  static Result<std::unique_ptr<DraftHeads>> load(std::shared_ptr<const ModelFile> file, const Model& target,
                                                  Stream& stream, int32_t max_rows);
  // The tree that the file names for its heads (named_tree()): "medusa_choices" or "hydra_choices" of a config.json,
  // "medusa.choices" or "hydra.choices" of a GGUF, which are strings like "0,1". Empty: none.
  static Result<std::vector<DraftPlace>> read_tree(const ModelFile& file);
  // Bytes that load() would allocate.
  static Result<int64_t> sized_bytes(const ModelFile& file, const Model& target, const Stream& stream,
                                     int32_t max_rows);

  int32_t n_heads() const { return static_cast<int32_t>(heads_.size()); }
  int32_t width() const { return width_; }
  // Token ids of the columns of a head's logits, ascending; empty: all ids of the target.
  const std::vector<TokenId>& ids() const { return ids_; }

  // Sets a sequence's row of the next pass to its hidden state, [C].
  void set_hidden(int32_t row, std::span<const float> hidden);
  void copy_hidden(int32_t from, int32_t to);
  // Adds the token after those of the row: the sequence's last one, then its drafts. At most n_heads().
  void add_token(int32_t row, int32_t place, TokenId token);
  // The logits of head `i`, [rows, ids or V], of rows that have i + 1 tokens; valid until the next call.
  std::span<const float> run(int32_t i, std::span<const int32_t> rows);

 private:
  struct Layer {
    Weight linear, skip;  // skip: n_outputs 0: none
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
  TensorView rows();

  std::shared_ptr<const ModelFile> file_;
  const Model& target_;
  Stream& stream_;
  int32_t width_ = 0;
  std::vector<Head> heads_;
  std::vector<TokenId> ids_;
  std::vector<std::byte> output_rows_;  // rows of the target's output matrix, as in its file
  Weight output_;                       // of output_rows_
  std::vector<std::unique_ptr<float[]>> copies_;
  std::vector<float> rows_;                   // [max_rows, (n_heads + 1) C]: hidden state, then embeddings
  std::vector<float> inputs_, x_, y_, ones_;  // scratch of a pass
  std::vector<float> logits_;
};

}  // namespace ibid
