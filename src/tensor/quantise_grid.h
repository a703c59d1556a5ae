// Rows of floats to the formats of grids above two bits: IQ2_XXS, IQ2_XS, IQ2_S, IQ3_XXS and IQ3_S. quantise_row
// (tensor/quantise.h) is what others call.
//
// The sizes of eight (IQ3: four) neighbours are a point of the format's grid, so all of them are chosen together. For
// each of some scales of a sub-block: round each size to the nearest that the format has, and of the 16 grid points
// nearest to these take the one with the least weighted squares of errors. The scale with the least error stays, then
// the block's scale is fitted to the points once more. Formats that keep seven of eight signs need an even number of
// negative ones: an odd one loses the sign of the element that counts least.
#pragma once

#include <cstdint>

#include "tensor/dtype.h"

namespace ibid {

bool has_grid_search(DType dtype);

// n floats, a multiple of 256, to row_bytes(dtype, n) bytes at dst. importance: of each, or null,
// when all are 1. Any thread; the first call for a format takes some 100 ms to list its neighbours.
void quantise_by_grid(DType dtype, const float* src, void* dst, int64_t n, const float* importance);

}  // namespace ibid
