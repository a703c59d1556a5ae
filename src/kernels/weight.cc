#include "kernels/weight.h"

#include "base/check.h"

namespace ibid {

Weight prepare_weight(Stream&, const TensorView& raw) {
  CHECK(raw.rank == 2, "a weight is a matrix");
  Weight w;
  w.dtype = raw.dtype;
  w.n_outputs = raw.dim[0];
  w.n_inputs = raw.dim[1];
  w.raw = raw;
  w.packed = raw.data;
  return w;
}

}  // namespace ibid
