// Rows of floats to the formats that need a search: Q2_K to Q6_K, IQ4_NL, IQ4_XS and MXFP4, and with an
// importance Q4_0, Q4_1, Q5_0 and Q5_1. quantise_row
// (tensor/quantise.h) is what others call.
#pragma once

#include <cstdint>

#include "tensor/dtype.h"

namespace ibid {

// n floats, a multiple of the dtype's block, to row_bytes(dtype, n) bytes at dst. importance: of each, or null. Any
// thread.
void quantise_searched(DType dtype, const float* src, void* dst, int64_t n, const float* importance);

}  // namespace ibid
