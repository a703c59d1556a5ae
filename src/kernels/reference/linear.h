// ops::linear in double precision: out[t, n] = sum over k of x[t, k] * W[n, k] for the dequantised weights and the
// activations as they are, in the weight's pieces of K. The specification that every kernel is compared with; see
// reference.h.
#pragma once

#include "kernels/weight.h"
#include "tensor/tensor.h"

namespace ibid::reference {

// Outputs [n, n_end) of all rows. out is F32 (rounded once) or F64; x is F32; reads w.raw only.
void linear(const TensorView& out, const TensorView& x, const Weight& w, int64_t n, int64_t n_end);

}  // namespace ibid::reference
