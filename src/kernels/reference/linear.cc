#include "kernels/reference/linear.h"

#include <vector>

#include "tensor/dequantise.h"

namespace ibid::reference {
namespace {

// Eight sums side by side: whole models are run through this to compare them with other engines.
double dot(const float* x, const float* w, int64_t n) {
  double sum[8] = {};
  int64_t k = 0;
  for (; k + 8 <= n; k += 8) {
    for (int i = 0; i < 8; ++i) sum[i] += static_cast<double>(x[k + i]) * static_cast<double>(w[k + i]);
  }
  for (; k < n; ++k) sum[0] += static_cast<double>(x[k]) * static_cast<double>(w[k]);
  return ((sum[0] + sum[4]) + (sum[1] + sum[5])) + ((sum[2] + sum[6]) + (sum[3] + sum[7]));
}

}  // namespace

void linear(const TensorView& out, const TensorView& x, const Weight& w, int64_t n, int64_t n_end) {
  std::vector<float> row(static_cast<size_t>(w.n_inputs));
  for (; n < n_end; ++n) {
    dequantise_row(w.dtype, w.raw.row(n), row.data(), w.n_inputs);
    for (int64_t t = 0; t < x.dim[0]; ++t) {
      const double sum = dot(x.row_as<float>(t), row.data(), w.n_inputs);
      if (out.dtype == DType::kF64) {
        out.row_as<double>(t)[n] = sum;
      } else {
        out.row_as<float>(t)[n] = static_cast<float>(sum);
      }
    }
  }
}

}  // namespace ibid::reference
