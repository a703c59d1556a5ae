#include "kernels/linear.h"

#include <algorithm>

#include "kernels/cpu/cpu_ops.h"
#include "kernels/on_device.h"
#include "kernels/ops.h"
#include "kernels/reference/linear.h"

namespace ibid::ops {

size_t linear_workspace_bytes(int64_t n_rows, int64_t n_inputs) {
  return cpu::linear_workspace_bytes(n_rows, n_inputs);
}

namespace {

MacUnit unit_of(DType dtype) {
  if (dtype == DType::kF32 || dtype == DType::kF16) return MacUnit::kFp32;
  return dtype == DType::kBF16 ? MacUnit::kBf16 : MacUnit::kInt8;
}

OpWork work_of(int64_t n_rows, std::span<const Weight* const> weights) {
  OpWork work;
  for (const Weight* w : weights) {
    work.macs[static_cast<size_t>(unit_of(w->dtype))] += n_rows * w->n_outputs * w->n_inputs;
    work.bytes += w->packed_bytes != 0 ? w->packed_bytes : w->n_outputs * row_bytes(w->dtype, w->n_inputs);
    work.n_outputs += w->n_outputs;
    work.n_inputs = w->n_inputs;
  }
  return work;
}

}  // namespace

void linear(Stream& s, std::span<const TensorView> out, const TensorView& x, std::span<const Weight* const> weights) {
  CHECK(out.size() == weights.size() && weights.size() <= kMaxLinearWeights, "one output per weight, at most eight");
  CHECK(x.dtype == DType::kF32, "activations are F32");
  Dim T, K;
  expect(x, {&T, &K});
  for (size_t j = 0; j < out.size(); ++j) {
    Dim N{weights[j]->n_outputs};
    expect(out[j], {&T, &N});
    CHECK(out[j].dtype == DType::kF32 && weights[j]->n_inputs == K.value, "shapes disagree");
  }
  on_device(
      s, "linear", [&] { cpu::linear(s, out, x, weights); },
      [&] {
        for (size_t j = 0; j < out.size(); ++j) {
          s.team().parallel_for((weights[j]->n_outputs + 15) / 16, [&](int64_t i, int) {
            reference::linear(out[j], x, *weights[j], i * 16, std::min(weights[j]->n_outputs, i * 16 + 16));
          });
        }
      },
      kNoBody, [&] { return work_of(T.value, weights); });
}

}  // namespace ibid::ops
