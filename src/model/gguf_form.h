// A ModelConfig back as GGUF describes it: metadata, the tensors that it needs, and the values of a folder's tensors
// under GGUF's names. For `ibid convert`, and for tests that make models.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "format/model_file.h"
#include "format/quant_recipe.h"
#include "model/arch/architecture.h"
#include "model/config.h"

namespace ibid {

using Metadata = std::map<std::string, MetaValue, std::less<>>;

// config.architecture must be a name that GGUF knows. A llama-3 scaling becomes rope_freqs.weight (rope_vectors_of).
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

// A folder's configuration as its GGUF form has it: without what that form's weights hold already (multipliers), and
// with gate and up apart where GGUF has them so. Of it are metadata_of and tensors_of a form.
ModelConfig gguf_config_of(const ModelConfig& of_folder);

// The values of a folder's tensor as GGUF has them, in floats: q and k rows in GGUF's order, norms with their offset.
// Of a quantised folder the values of its codes: those of the rows that the folder is read as
// (format/quantised_matrix.h). `recipe`, as read_quant_recipe reads it. An error is a sentence about the folder.
Result<std::vector<float>> gguf_values(const ModelFile& folder, const QuantRecipe& recipe, const ModelConfig& config,
                                       const TensorSpec& spec);

// The folder's tensor that is the whole of what GGUF calls `name`, in the same order of rows or not; empty: it has
// none, or several, or its rows or columns are others.
std::string folder_tensor_of(const ModelFile& folder, const QuantRecipe& recipe, const Architecture& architecture,
                             const ModelConfig& config, const std::string& name);

// A quantised matrix, or those of all experts, as rows of the type that it is read as, in GGUF's order: the very
// values.
struct GgufCodes {
  DType dtype = DType::kF32;
  std::vector<std::byte> rows;  // empty without `with_rows`
};
// None: the folder has it in floats, or GGUF's rows are not the folder's, as where columns lie elsewhere.
Result<std::optional<GgufCodes>> gguf_codes(const ModelFile& folder, const QuantRecipe& recipe,
                                            const ModelConfig& config, const TensorSpec& spec, bool with_rows);

// Rows of q, k and v, or of z, of rows that are of each key head its query, key, values and z, of `columns` each.
std::vector<float> part_of_qkvz(const DeltaHeads& heads, const std::vector<float>& all, int64_t columns, bool is_z);
// A and B of an adapter's term for what `pattern` names ("blk.{}.attn_q.weight"), as they are for a folder, become
// those for its GGUF form: a[r, K] and b[N, r]. Errors name what GGUF holds otherwise than in another order.
Status lora_in_gguf_order(const ModelConfig& config, const std::string& pattern, int64_t layer, int64_t n_inputs,
                          int64_t n_outputs, int64_t rank, std::vector<float>& a, std::vector<float>& b);

}  // namespace ibid
