// QuantisedMatrix: a matrix W[N, K] that a safetensors folder keeps as codes and the tensors that they are read with:
// scales, zeros, an order. It becomes rows of one of our types, a copy that is made when it is loaded.
//
//   what a folder has (tensor of codes)                 value, in the order of its roundings       rows
//   GPTQ 2, 3, 4, 8 bits (qweight)                      scale * (code - zero)                      integers, see below
//   AWQ gemm, 4 bits (qweight)                          scale * (code - zero)                      integers
//   compressed-tensors integers (weight_packed, weight) scale * (code - zero)                      integers
//   MLX affine 2 to 6, 8 bits (weight)                  scale * code + bias                        Q4_1, Q5_1, or
//   floats FP8: E4M3, E5M2 (weight)                            value * scale, of the matrix, a row,       BF16
//                                                       a block or, a power of two, 32 inputs
//   NVFP4 (weight_packed; ModelOpt: weight)             value * (scale / global; scale * second)   BF16
//   MXFP4 (weight_packed)                               value * 2^exponent                         MXFP4
//   bitsandbytes NF4, FP4 (weight, weight.absmax)       table[code] * absmax                       its dtype
//   bitsandbytes INT8 (weight, SCB)                     (code * SCB) * f32(1 / 127)                F16
//
// Integers. d * (code - zero), with d a group's scale, is exact in f32: where groups are whole blocks of 32 and all
// scales are numbers of F16, rows are exactly that: Q4_0 (two and three bits too; without zeros four), Q5_0 (four bits
// with zeros: differences of -16 to 15), Q8_0 (eight bits without zeros). Else they are floats of the scales' type, as
// the reference has them: one rounding of the same product. FP8 with scales of F16 becomes F16 too. MLX
// rounds its product first where it dequantises, as our floats do, and not where it multiplies, as our blocks do not.
// All others equal what the packages that write them dequantise to, bit for bit (tests/golden/quantised).
//
// Names and layouts: gptqmodel (nn_modules/qlinear), autoawq (utils/packing_utils.py), compressed-tensors
// (compressors/), modelopt, bitsandbytes (functional.py), mlx.core.quantize.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "format/model_file.h"
#include "format/quant_recipe.h"

namespace ibid {

class QuantisedMatrix {
 public:
  // Whether the folder has a quantised matrix NAME.weight; `name` ends with ".weight".
  static bool is_in(const ModelFile& file, const QuantRecipe& recipe, std::string_view name);
  // One that is_in, of N = n_outputs and K = n_inputs. All tensors that it is read from are checked, and their shapes
  // bound its memory. The file outlives it.
  static Result<QuantisedMatrix> find(const ModelFile& file, const QuantRecipe& recipe, std::string_view name,
                                      int64_t n_outputs, int64_t n_inputs);

  DType dtype() const { return dtype_; }
  // What it is made of, and what stands beside it and is of no use to a product of 8-bit activations.
  const std::vector<const TensorInfo*>& tensors() const { return tensors_; }
  // Rows [row, row_end) of `dtype`, one after the other. From any thread.
  void rows(int64_t row, int64_t row_end, std::byte* to) const;

 private:
  enum class Kind : uint8_t { kIntegers, kAffine, kFloat8, kNvfp4, kMxfp4, kTable, kScb };
  // Where an array of codes of `bits` bits lies: code i of line j is at bits [i % per_word * bits, ...) of word
  // i / per_word * step + j * line_step, or, dense, at bit i * bits of those words' stream.
  struct Codes {
    const uint8_t* data = nullptr;
    int bits = 0;
    int64_t step = 1, line_step = 0;
    bool is_awq = false;    // eight in a word, in its order
    int64_t per_word = 0;   // 0: dense
    bool is_int8 = false;   // signed bytes
    uint32_t word_add = 0;  // to a word before a single code is taken from it; lines are of words without
    int32_t at(int64_t line, int64_t i) const;
    void take_line(int64_t line, int64_t n, int32_t* to) const;       // at(line, i) of n codes
    void take_column(int64_t i, int64_t n_lines, int32_t* to) const;  // at(line, i) of n lines, AWQ's
  };
  class Finder;

  QuantisedMatrix() = default;
  void integer_row(int64_t n, int32_t* codes, float* scales) const;
  void float_row(int64_t n, float* values) const;
  template <typename Block>
  void write_mins(int64_t n, std::byte* row) const;
  // Of group g of row n.
  float scale(int64_t n, int64_t g) const;

  Kind kind_ = Kind::kIntegers;
  DType dtype_ = DType::kF32;
  int64_t n_outputs_ = 0, n_inputs_ = 0;
  Codes codes_, zeros_;
  bool codes_are_columns_ = false;  // AWQ: lines are inputs
  int32_t zero_ = 0;                // of all codes, where zeros_ has none
  int32_t zero_step_ = 0;           // added to each of zeros_
  TensorView scales_;
  int64_t scale_row_ = 0, scale_group_ = 0;  // steps in elements
  int64_t scale_rows_ = 1;                   // rows of one
  int64_t group_len_ = 0;
  std::vector<int32_t> group_of_;  // of each input, where it is not k / group_len_
  TensorView biases_;              // kAffine
  float second_ = 1.0f;            // kNvfp4: of the matrix
  bool divides_ = false;
  // kTable: of blocks of the whole matrix.
  std::vector<float> table_, block_scales_;
  std::vector<const TensorInfo*> tensors_;
};

// Of a folder with a recipe, a tensor that no product needs: a scale of keys, values or activations, or a bias of
// zeros, as old writers of GPTQ add one to each matrix.
bool is_beside_quantised(const TensorInfo& tensor);

}  // namespace ibid
