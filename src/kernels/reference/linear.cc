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

// Pieces [first, last) of K, added as the tree of kernels/k_pieces.h.
double sum_of_pieces(const float* x, const float* w, const KPieces& pieces, int first, int last) {
  if (last - first > 1) {
    const int middle = (first + last) / 2;
    return sum_of_pieces(x, w, pieces, first, middle) + sum_of_pieces(x, w, pieces, middle, last);
  }
  const int64_t k = pieces.edges[static_cast<size_t>(first)], k_end = pieces.edges[static_cast<size_t>(last)];
  return dot(x + k, w + k, k_end - k);
}

}  // namespace

void linear(const TensorView& out, const TensorView& x, const Weight& w, int64_t n, int64_t n_end) {
  CHECK(w.raw.data != nullptr, "a copy is kept for the reference that was selected before the load");
  std::vector<float> row(static_cast<size_t>(w.n_inputs));
  for (; n < n_end; ++n) {
    dequantise_row(w.dtype, w.raw.row(n), row.data(), w.n_inputs);
    for (int64_t t = 0; t < x.dim[0]; ++t) {
      const double sum =
          sum_of_pieces(x.row_as<float>(t), row.data(), w.pieces, 0, w.pieces.n) * static_cast<double>(w.out_scale);
      if (out.dtype == DType::kF64) {
        out.row_as<double>(t)[n] = sum;
      } else {
        out.row_as<float>(t)[n] = static_cast<float>(sum);
      }
    }
  }
}

}  // namespace ibid::reference
