// QuantRecipe: how a safetensors folder's matrices were quantised, as its `quantization_config` specifies it. (MLX
// writes `quantization`; GPTQ, AWQ and ModelOpt also keep it in a file beside config.json.) What is quantised is read
// from the tensors and their shapes (format/quantised_matrix.h): the recipe gives only what they do not show. So lists
// of targets, patterns and exceptions are not read, and what is unknown is refused by its name.
//
// It is bytes from outside: time and memory are bounded by the limits of base/json.h.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "format/model_file.h"

namespace ibid {

enum class QuantMethod : uint8_t {
  kNone,
  kGptq,
  kAwq,
  kCompressed,    // compressed-tensors
  kFp8,           // DeepSeek's and AutoFP8's, fbgemm's, MXFP8
  kModelOpt,      // FP8, MXFP8, NVFP4
  kBitsAndBytes,  // NF4, FP4, INT8
  kMxfp4,         // gpt-oss: experts alone (WeightLoader::turned_experts)
  kMlx,           // affine
};

struct QuantRecipe {
  QuantMethod method = QuantMethod::kNone;
  bool symmetric = false;           // GPTQ, AWQ: every zero is 2^(bits - 1), and what the file has for them is not read
  bool zeros_are_less_1 = false;    // GPTQ of version 1
  std::vector<int64_t> group_lens;  // that matrices may have; else as their shapes have it
  std::vector<int> bits;            // that codes may have; empty: any
  int64_t block_rows = 128, block_columns = 128;  // of FP8's scales
  std::string kv_type;  // of keys and values, in capitals: "FP8", "INT8" or another; empty: no word of it
};

// Of a folder's config.json and the files beside it, the recipe as JSON with a `quant_method`; empty: there is none.
// Texts of files that do not exist are empty.
struct RecipeTexts {
  std::string_view config, quantize_config, quant_config, hf_quant_config;
};
Result<std::string> recipe_json(const RecipeTexts& texts, const std::string& folder);

// ModelFile::quant_recipe_json, read.
Result<QuantRecipe> read_quant_recipe(const ModelFile& file);

}  // namespace ibid
