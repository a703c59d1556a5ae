// Rows of floats to the formats that need a search: Q2_K to Q6_K, IQ4_NL, IQ4_XS and MXFP4. quantise_row
// (tensor/quantise.h) is what others call.
#pragma once

#include <cstdint>

#include "tensor/dtype.h"

namespace ibid {

// n floats, a multiple of the dtype's block, to row_bytes(dtype, n) bytes at dst. Any thread.
void quantise_searched(DType dtype, const float* src, void* dst, int64_t n);

}  // namespace ibid
