// Rows of floats to every format that weights may have.
//
// F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0 and MXFP4 need no search, and equal gguf.quants.quantize of the Python
// package `gguf` byte for byte, for finite input whose scale is a normal float. Q4_0, Q5_0: scale = (the element of
// largest magnitude, the first of equals) / -8 (-16). Q4_1, Q5_1: scale = (max - min) / 15 (31), min kept. Q8_0: scale
// = max|x| / 127, ties away from zero. Codes come from the float scale before it is rounded to half.
//
// Q2_K to Q6_K, IQ4_NL and IQ4_XS (which that package only reads): of some twenty scales of each sub-block the one with
// the least weighted squares of errors; the scales become whole numbers, and codes come from what these are read as.
// With `importance`, n weights of the row's inputs that are not negative, errors count by it: that of element i by
// importance[i] sqrt(s + x[i]^2), where s is twice the mean square of the block (ggml's rule for K-quants). The formats
// of blocks of 32 with less than 8 bits are then searched too. F32, F16, BF16, Q8_0 and MXFP4 take no notice of it.
//
// IQ2_XXS to IQ3_S choose points of grids (tensor/quantise_grid.h); TQ1_0, TQ2_0, Q1_0, Q2_0 and NVFP4 are made without
// a search and take no notice of importance (tensor/quantise_short.h). IQ1_S and IQ1_M are read only.
// Other input (infinite, NaN, subnormal scale) gives codes in range, no more.
#pragma once

#include <cstdint>

#include "tensor/dtype.h"

namespace ibid {

bool can_quantise(DType dtype);

// n floats, a multiple of the block length, to row_bytes(dtype, n) bytes at dst. can_quantise(dtype). Any thread.
void quantise_row(DType dtype, const float* src, void* dst, int64_t n, const float* importance = nullptr);

}  // namespace ibid
