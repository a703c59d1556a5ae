// Stands in for cuda_ops.cu in builds without nvcc: there is no way to make a CUDA stream, so no op can be reached.
#include "kernels/cuda/cuda_ops.h"

#include "base/check.h"

namespace ibid::cuda {

bool built() { return false; }

Result<Stream> make_stream() {
  return unsupported("this build has no CUDA kernels; build it where nvcc is installed, or run on the CPU", "device");
}

void rms_norm(Stream&, const TensorView&, const TensorView&, const TensorView&, float) {
  CHECK(false, "a CUDA stream in a build without CUDA");
}
void linear(Stream&, const TensorView&, const TensorView&, const TensorView&) {
  CHECK(false, "a CUDA stream in a build without CUDA");
}
size_t linear_workspace_bytes(int64_t, int64_t) { return 0; }

}  // namespace ibid::cuda
