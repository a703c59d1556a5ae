// The ops that have a CUDA form. The rest of kernels/ calls these on streams of Device::kCuda; a build without nvcc
// links cuda_absent.cc, which has none. All pointers are device memory; work is enqueued on `stream` (a cudaStream_t).
//
// State: compiled and linked, never run (no GPU was at hand). rms_norm follows the CPU's order of sums to the bit by
// construction. linear asks cuBLASLt once per (N, K, dtype) for an algorithm without split-K and keeps it for every
// number of rows (docs/design.md section 5, law 8); whether such an algorithm gives a row the same bits in every batch
// is to be proven on a device before a model runs here.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/result.h"
#include "tensor/stream.h"
#include "tensor/tensor.h"

namespace ibid::cuda {

bool built();  // whether this build has CUDA kernels at all
// A stream on the current device, or a sentence that says why there is none.
Result<Stream> make_stream();

void rms_norm(Stream& s, const TensorView& out, const TensorView& x, const TensorView& weight, float eps);

// out[T, N] = x[T, K] * w[N, K]^T. w is F32, F16 or BF16 as the file has it; x is rounded to w's dtype; sums are fp32.
void linear(Stream& s, const TensorView& out, const TensorView& x, const TensorView& w);
size_t linear_workspace_bytes(int64_t n_rows, int64_t n_inputs);

}  // namespace ibid::cuda
