// A ModelConfig back as GGUF describes it: metadata, the tensors that it needs, and a whole folder's model converted.
// For tests (tiny random models, both containers of one golden model) and for tools that write models.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/result.h"
#include "format/model_file.h"
#include "model/config.h"

namespace ibid::testing {

using Metadata = std::map<std::string, MetaValue, std::less<>>;

// config.architecture must be a name that GGUF knows. A llama-3 scaling becomes rope_freqs.weight (see extra_vectors).
Metadata metadata_of(const ModelConfig& config);

struct TensorSpec {
  enum class Kind {
    kEmbedding,
    kMatrix,
    kRouter,
    kNorm,
    kBias,
    kTaps,
    kDecay
  };                 // a router and taps are matrices of F32
  std::string name;  // GGUF's
  Kind kind = Kind::kMatrix;
  std::vector<int64_t> dims;
};
// Every tensor that the forward pass of `config` reads, under its GGUF name.
std::vector<TensorSpec> tensors_of(const ModelConfig& config);

// A contiguous tensor of one to three dimensions.
TensorView view_of(void* bytes, DType dtype, const std::vector<int64_t>& dims);

// RoPE data that GGUF keeps as tensors: rope_freqs.weight, rope_factors_short.weight, rope_factors_long.weight.
std::map<std::string, std::vector<float>> rope_vectors_of(const ModelConfig& config);

// The GGUF form of a folder's model, in memory: names, q and k rows in GGUF's order, norms with their offset.
Result<ModelFile> as_gguf(const ModelFile& folder);

// Its bytes as a file.
std::string gguf_bytes(const ModelFile& file);

}  // namespace ibid::testing
