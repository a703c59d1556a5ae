// Rows of floats to the formats that need no search: F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0. Equal byte for byte
// to gguf.quants.quantize of the Python package `gguf` for finite input whose scale is a normal float.
//
// Q4_0, Q5_0: scale = (the element of largest magnitude, the first of equals) / -8 (-16). Q4_1, Q5_1: scale =
// (max - min) / 15 (31), min kept. Q8_0: scale = max|x| / 127, ties away from zero. Codes come from the float scale
// before it is rounded to half. Other input (infinite, NaN, subnormal scale) gives codes in range, no more.
#pragma once

#include <cstdint>

#include "tensor/dtype.h"

namespace ibid {

bool can_quantise(DType dtype);

// n floats, a multiple of the block length, to row_bytes(dtype, n) bytes at dst. can_quantise(dtype). Any thread.
void quantise_row(DType dtype, const float* src, void* dst, int64_t n);

}  // namespace ibid
