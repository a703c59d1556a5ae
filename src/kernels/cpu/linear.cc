// ops::linear on the CPU: activations are brought into the forms that the weights need, then tiles of all weights are
// dealt to the team. What a tile's sums are stands in kernels/linear.h; how work is dealt changes no bit.
#include "kernels/linear.h"

#include <algorithm>
#include <array>

#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/for_rows.h"
#include "kernels/cpu/linear_cut.h"
#include "kernels/cpu/table.h"

namespace ibid::cpu {
namespace {

static_assert(kMaxPieces == KPieces::kMax);

enum class XForm { kFloat, kBf16, kInt8 };

XForm x_form(DType dtype) {
  if (dtype == DType::kF32 || dtype == DType::kF16) return XForm::kFloat;
  return dtype == DType::kBF16 ? XForm::kBf16 : XForm::kInt8;
}

// The forms of T rows of K inputs, one after the other in the workspace. A null workspace only counts bytes.
struct XForms {
  XForms(std::byte* workspace, int64_t T, int64_t K) {
    auto take = [&]<typename E>(E*& p, int64_t n) {
      if (workspace != nullptr) p = reinterpret_cast<E*>(workspace + bytes);
      bytes += (static_cast<size_t>(n) * sizeof(E) + 63) / 64 * 64;
    };
    int8.n_rows = T;
    int8.n_groups = K / 32;
    take(int8.groups, T * (K / 32));
    take(bf16, T * (K + K % 2));
  }
  QuantisedRows int8;
  uint16_t* bf16 = nullptr;
  size_t bytes = 0;
};

// Each form of x that one of the weights needs.
XForms convert_inputs(Stream& s, const TensorView& x, std::span<const Weight* const> weights) {
  const LinearTable& kernels = *table().linear;
  const int64_t T = x.dim[0], K = x.dim[1], x_stride = x.row_stride_bytes / 4;
  const auto* x_data = reinterpret_cast<const float*>(x.data);
  bool needs_int8 = false, needs_bf16 = false, needs_16 = false;
  for (const Weight* w : weights) {
    needs_int8 |= x_form(w->dtype) == XForm::kInt8;
    needs_bf16 |= x_form(w->dtype) == XForm::kBf16;
    needs_16 |= block_layout(w->dtype).group_len == 16;
  }
  XForms forms(needs_int8 || needs_bf16 ? s.workspace(linear_workspace_bytes(T, K)) : nullptr, T, K);
  forms.int8.has_halves = needs_16;
  auto convert = [&](int64_t row, int64_t row_end) {
    if (needs_int8) kernels.quantise_rows(forms.int8, x_data, x_stride, row, row_end);
    if (needs_bf16) kernels.round_rows(forms.bf16, K, x_data, x_stride, row, row_end);
  };
  // An element costs four times an addition.
  if (needs_int8 || needs_bf16) for_rows(s, T, K, 4, convert);
  return forms;
}

}  // namespace

size_t linear_workspace_bytes(int64_t n_rows, int64_t n_inputs) { return XForms(nullptr, n_rows, n_inputs).bytes; }

void linear(Stream& s, std::span<const TensorView> out, const TensorView& x, std::span<const Weight* const> weights) {
  const LinearTable& kernels = *table().linear;
  const int64_t T = x.dim[0], K = x.dim[1];
  if (T == 0 || weights.empty()) return;
  const auto* x_data = reinterpret_cast<const float*>(x.data);
  const int64_t x_stride = x.row_stride_bytes / 4;

  const XForms forms = convert_inputs(s, x, weights);

  // Tasks are numbered through all weights: piece of outputs by piece of rows.
  std::array<LinearTask, ops::kMaxLinearWeights> tasks;
  std::array<int64_t, ops::kMaxLinearWeights + 1> first_task{};
  std::array<int64_t, ops::kMaxLinearWeights> n_tiles{};
  for (size_t j = 0; j < weights.size(); ++j) {
    n_tiles[j] = (weights[j]->n_outputs + kTileOutputs - 1) / kTileOutputs;
  }
  const Cut cut = cut_product(T, {n_tiles.data(), weights.size()}, s.team().n_threads());
  const int64_t n_row_pieces = (T + cut.n_rows - 1) / cut.n_rows;
  for (size_t j = 0; j < weights.size(); ++j) {
    const Weight& w = *weights[j];
    tasks[j] = {.dtype = w.dtype,
                .table = code_table(w.dtype),
                .packed = w.packed,
                .tile_bytes = packed_tile_bytes(w.dtype, K),
                .n_outputs = w.n_outputs,
                .n_inputs = K,
                .n_pieces = w.pieces.n,
                .edges = w.pieces.edges.data(),
                .fetches_into_second = core().fetches_into_second,
                .has_dot_a_cycle = core().has_dot_a_cycle,
                .x = x_data,
                .x_stride = x_stride,
                .x_bf16 = forms.bf16,
                .x_int8 = forms.int8,
                .out = reinterpret_cast<float*>(out[j].data),
                .out_stride = out[j].row_stride_bytes / 4};
    first_task[j + 1] = first_task[j] + (n_tiles[j] + cut.n_tiles[j] - 1) / cut.n_tiles[j] * n_row_pieces;
  }
  s.team().parallel_for(first_task[weights.size()], [&](int64_t task, int) {
    size_t j = 0;
    while (task >= first_task[j + 1]) ++j;
    const int64_t piece = (task - first_task[j]) / n_row_pieces, row_piece = (task - first_task[j]) % n_row_pieces;
    const int64_t tile = piece * cut.n_tiles[j], row = row_piece * cut.n_rows;
    kernels.product(tasks[j], row, std::min(T, row + cut.n_rows), tile, std::min(n_tiles[j], tile + cut.n_tiles[j]));
  });
}

}  // namespace ibid::cpu
