// Rows of any dtype to float: the reference that defines the value of a quantised weight.
//
// Bit-exact with gguf.quants.dequantize of the Python package `gguf` (NaNs compare as NaN: their payload depends on the
// order in which a machine looks at the operands). Each product and difference rounds once, in the order of the
// formulas in block_formats.h read from left to right: Q2_K is (scale * s) * code - (min * m).
#pragma once

#include <cstdint>

#include "tensor/dtype.h"
#include "tensor/tensor.h"

namespace ibid {

// n elements of `dtype` at src to n floats at dst; n is a multiple of the block length. src needs no alignment. dtype
// is floating (F32, F16, BF16, F64) or quantised. May be called from any thread.
void dequantise_row(DType dtype, const void* src, float* dst, int64_t n);

// All rows of a tensor of any rank to n_elements() floats.
void dequantise(const TensorView& x, float* dst);

}  // namespace ibid
