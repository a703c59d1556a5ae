// Rows of floats to the formats of one or two bits without a search, and NVFP4: TQ1_0, TQ2_0, Q1_0, Q2_0. quantise_row
// (tensor/quantise.h) is what others call. All equal ggml's reference quantisers byte for byte, for finite input.
//
// TQ1_0, TQ2_0, Q2_0: scale = the largest magnitude of the block; codes are the nearest, ties away from zero. Q1_0:
// scale = the mean magnitude; codes are the signs. NVFP4: of each 16 the scale is the E4M3 number nearest to the
// largest magnitude / 6; codes are the nearest, the first of equals.
#pragma once

#include <cstdint>

#include "tensor/dtype.h"

namespace ibid {

bool is_short(DType dtype);

// n floats, a multiple of the dtype's block, to row_bytes(dtype, n) bytes at dst. Any thread.
void quantise_short(DType dtype, const float* src, void* dst, int64_t n);

}  // namespace ibid
