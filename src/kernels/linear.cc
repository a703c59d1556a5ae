#include <algorithm>

#include "kernels/cpu/linear_table.h"
#include "kernels/cpu/table.h"
#include "kernels/ops.h"
#include "tensor/dequantise.h"

namespace ibid::ops {
namespace {
constexpr int64_t kMaxInputs = 65536;
}

size_t linear_workspace_bytes(int64_t n_rows, int64_t n_inputs) { return static_cast<size_t>(n_rows * n_inputs * 4); }

void linear(Stream& s, std::span<const TensorView> out, const TensorView& x, std::span<const Weight* const> weights) {
  CHECK(out.size() == weights.size(), "one output per weight");
  for (size_t j = 0; j < out.size(); ++j) {
    const Weight& w = *weights[j];
    Dim T, N{w.n_outputs}, K{w.n_inputs};
    expect(x, {&T, &K});
    expect(out[j], {&T, &N});
    CHECK(K.value <= kMaxInputs);
    s.team().parallel_for((N.value + 15) / 16, [&](int64_t task, int) {
      float row[kMaxInputs];
      for (int64_t n = task * 16; n < std::min(N.value, task * 16 + 16); ++n) {
        dequantise_row(w.dtype, w.raw.row(n), row, K.value);
        for (int64_t t = 0; t < T.value; ++t) out[j].row_as<float>(t)[n] = cpu::table().linear->dot(x.row_as<float>(t), row, K.value);
      }
    });
  }
}

}  // namespace ibid::ops
