// A folder of safetensors as another one whose matrices are integers with a scale for each group of inputs, or for each
// output: what compressed-tensors calls pack-quantized (W4A16, W8A16) and int-quantized (W8A8), and vLLM, SGLang and
// transformers read.
//
// Quantised are the matrices of the layers that a product reads whole (model/activation_sums.h names them): attention's
// four, the feed-forward's, and those of recurrent layers. Embeddings, the output, norms, routers and biases, matrices
// whose inputs are no whole groups, draft layers and vision towers keep their bytes.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "base/ids.h"
#include "base/result.h"
#include "format/model_file.h"
#include "model/group_quantise.h"
#include "model/model.h"

namespace ibid {

enum class GroupSearch : uint8_t { kNone, kGptq, kAwq, kSmooth };

struct QuantiseFolderOptions {
  int bits = 4;             // 4 or 8
  int64_t group_len = 128;  // a multiple of 32
  // A scale for each output, not for a group of its inputs, and a recipe whose activations are codes of 8 bits with a
  // scale for each token. `bits` is 8, and AWQ is not for it; SmoothQuant is for nothing else.
  bool quantises_inputs = false;
  GroupSearch search = GroupSearch::kNone;
  std::span<const TokenId> tokens;  // of a search: the text that it looks at
  int64_t chunk_len = 512;          // of the text
  TokenId begin = TokenId::kNone;   // the first token of each chunk
  double damp = 0.01;               // of GPTQ (gptq_factor)
  bool act_order = false;
  double smoothing = 0.5;                    // of SmoothQuant: smooth_factors' a
  int64_t moments_bytes = int64_t{2} << 30;  // that may be held at once; one layer's always are
  uint64_t max_file_bytes = 0;               // of tensors in a file; 0: one file
};

struct QuantisedFolder {
  int64_t n_quantised = 0;  // matrices
  int64_t n_left = 0;       // matrices of layers that stay, as their inputs are no whole groups
  int64_t n_folded = 0;     // inputs of products that AWQ or SmoothQuant multiplies: norms, up-projections that divide
  uint64_t bytes_before = 0, bytes = 0;
};

// Writes the folder `to`, which must not be there and appears only once it is complete: weights, config.json with its
// quantization_config, and a copy of tokenizer, chat template and generation_config.json. `model`: of a search,
// `folder` loaded by `s`; null without one. Searches look at the inputs that the unquantised model has. The bytes
// depend on folder and options alone, not on threads or the processor. Errors are sentences: no folder of floats, a
// search of a model with experts or, for AWQ and SmoothQuant, of another shape than llama's and gemma's, a number that
// is not finite, the disk. progress(done, all) counts matrices after runs over the text.
Result<QuantisedFolder> quantise_folder(const ModelFile& folder, Model* model, Stream& s, const std::string& to,
                                        const QuantiseFolderOptions& options,
                                        const std::function<void(uint64_t, uint64_t)>& progress = {});

}  // namespace ibid
