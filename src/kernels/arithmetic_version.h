// The number of the arithmetic: two builds with the same number compute the same bits from the same weights and tokens.
// Traces, digests of sampling and the keys of cached blocks carry it, so that nothing computed by another arithmetic is
// taken for the same (docs/design.md section 5, law 5).
//
// Raise it by one in the very commit that changes a bit of any logit or of any key or value in the cache: another order
// of sums, another rounding or quantisation of activations, another approximation of a function, the correction of a
// wrong result. Not for a format, shape, op or instruction set that is new and leaves the bits of the others, nor for
// sampling, whose order and parameters have digests of their own. src/model/arithmetic_version_test.cc pins the bits.
//
//   1  one accumulator over all of K in every product
//   2  products that tensor parallelism cuts along K are sums of eight pieces (kernels/k_pieces.h)
#pragma once

namespace ibid {

inline constexpr int kArithmeticVersion = 2;

}  // namespace ibid
