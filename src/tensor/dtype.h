// Element types: plain numbers and the block-quantised formats of the ggml family.
//
// A quantised tensor is a row-major array of blocks along its innermost dimension; block_len elements share one block
// of block_bytes bytes. The bit layouts are those of GGUF files; tensor/block_formats.h declares the structs.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace ibid {

enum class DType : uint8_t {
  kF32,
  kF16,
  kBF16,
  kQ4_0,
  kQ4_1,
  kQ5_0,
  kQ5_1,
  kQ8_0,
  kQ2_K,
  kQ3_K,
  kQ4_K,
  kQ5_K,
  kQ6_K,
  kIQ4_NL,
  kIQ4_XS,
  kMXFP4,
  kIQ1_S,
  kIQ1_M,
  kIQ2_XXS,
  kIQ2_XS,
  kIQ2_S,
  kIQ3_XXS,
  kIQ3_S,
  kTQ1_0,
  kTQ2_0,
  kNVFP4,
  kQ1_0,
  kQ2_0,
  kI8,
  kI16,
  kI32,
  kI64,
  kF64,
};
inline constexpr int kDTypeCount = 33;

struct DTypeTraits {
  std::string_view name;  // as users write it: "Q4_1"
  int block_len;          // elements per block; 1 for plain types
  int block_bytes;        // bytes per block
};

const DTypeTraits& traits(DType dtype);
std::optional<DType> dtype_from_name(std::string_view name);  // any letter case

inline bool is_quantised(DType dtype) { return traits(dtype).block_len > 1; }
// Whether products and look-ups can read the type: no integers, and no F64.
inline bool is_weight_type(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16 || is_quantised(dtype);
}
// Bytes of `len` elements; len must be a multiple of block_len.
int64_t row_bytes(DType dtype, int64_t len);

}  // namespace ibid
