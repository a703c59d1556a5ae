// Keys and values of one byte an element (DType::kI8): of each token and head the codes of its Dk elements and a scale
// of its own, and of its Dv likewise. The scale is an F16, so code * scale is exact in F32: a cache of codes is one of
// those F32 numbers, and attention over it is bit for bit what it is over an F32 cache that holds them.
//
//   scale = the least F16 that is max|x| / 127 or more (0 for zeros; NaN where an element is)
//   code  = x * (1 / scale), nearest, ties to even, in [-127, 127]
//
// so |x - code * scale| <= scale / 2 (1 + 2^-15). Both kernels and references store by
// quantise_head(): what a slot holds is a function of its token's F32 key and value alone.
#pragma once

#include <cstdint>

namespace ibid {

inline constexpr int kMostCode = 127;

// n floats to n codes. Returns the scale. Any thread; the same bits on every machine.
uint16_t quantise_head(const float* x, int32_t n, int8_t* codes);

}  // namespace ibid
