// Which type each matrix of a model gets: the mixtures of `ibid quantize --type`. Matrices whose errors matter most
// (the output, values, down projections, the first and last layers) get more bits, as in llama.cpp's llama-quantize,
// whose names these are.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "tensor/dtype.h"

namespace ibid {

enum class QuantMix : uint8_t {
  kF32,
  kF16,
  kBF16,
  kQ4_0,
  kQ4_1,
  kQ5_0,
  kQ5_1,
  kQ8_0,
  kQ2_K,
  kQ3_K_S,
  kQ3_K_M,
  kQ3_K_L,
  kQ4_K_S,
  kQ4_K_M,
  kQ5_K_S,
  kQ5_K_M,
  kQ6_K,
  kIQ4_NL,
  kIQ4_XS,
  kMXFP4,
  kIQ2_XXS,
  kIQ2_XS,
  kIQ2_S,  // IQ2_XS for most
  kIQ2_M,  // IQ2_S for most
  kIQ3_XXS,
  kIQ3_XS,
  kIQ3_S,
  kIQ3_M,
  kTQ1_0,
  kTQ2_0,
  kNVFP4,
  kQ1_0,
  kQ2_0,
};

// Any letter case; q3_k, q4_k and q5_k mean the M mixtures.
std::optional<QuantMix> quant_mix_from_name(std::string_view name);
std::string quant_mix_names();              // "f32, f16, ...": for sentences
int64_t quant_mix_file_type(QuantMix mix);  // general.file_type

struct MixedMatrix {
  std::string_view name;        // "blk.3.attn_v.weight"
  int64_t n_layers = 0;         // L
  int64_t heads_per_kv = 1;     // H / K
  int64_t row_len = 0;          // inputs
  bool tied_embedding = false;  // there is no output.weight
};
// The type that the mixture names for it, regardless of the length of its rows.
DType wished_dtype(QuantMix mix, const MixedMatrix& matrix);
// The type it gets. Where its rows are not a whole number of the type's blocks: the nearest type of blocks of 32 with
// as many bits or more (Q4_K: Q5_0; Q5_K: Q5_1; Q6_K: Q8_0; all others: IQ4_NL), and F16 where 32 do not divide them
// either.
DType mixed_dtype(QuantMix mix, const MixedMatrix& matrix);
DType fitting_dtype(DType dtype, int64_t row_len);
DType quant_mix_base(QuantMix mix);  // what it has most of

}  // namespace ibid
