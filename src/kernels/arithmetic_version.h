// The engine's arithmetic: a name and a number. Two engines of the same name and number compute the same bits from the
// same weights and tokens. Traces, digests of sampling and the keys of cached blocks carry both, so that nothing
// computed by another arithmetic is taken for the same (docs/design.md section 5, law 5).
//
// The name identifies the laws that sums follow: `portable`, those of docs/design.md section 5, which any processor can
// keep; a device whose units round in another specified way computes by an arithmetic of another name.
//
// Raise the number by one in the very commit that changes a bit of any logit or of any key or value in the cache:
// another order of sums, another rounding or quantisation of activations, another approximation of a function, the
// correction of a wrong result. Not for a format, shape, op or instruction set that is new and leaves the bits of the
// others, nor for sampling, whose order and parameters have digests of their own. src/model/arithmetic_version_test.cc
// pins the bits.
//
//   1  one accumulator over all of K in every product
//   2  products that tensor parallelism cuts along K are sums of eight pieces (kernels/k_pieces.h)
//   3  attention merges its pieces as an anchored binary tree (kernels/cpu/attention_table.h): contexts beyond 768
//   tokens
#pragma once

#include <string>
#include <string_view>

namespace ibid {

inline constexpr std::string_view kArithmeticName = "portable";
inline constexpr int kArithmeticVersion = 3;

// "portable-3".
inline std::string arithmetic_id() { return std::string(kArithmeticName) + '-' + std::to_string(kArithmeticVersion); }

}  // namespace ibid
