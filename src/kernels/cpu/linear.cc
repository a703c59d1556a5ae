// ops::linear on the CPU: activations are brought into the forms that the weights need, then tiles of all weights are
// dealt to the team. What a tile's sums are stands in kernels/linear.h; how work is dealt changes no bit.
#include "kernels/linear.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/for_rows.h"
#include "kernels/cpu/linear_cut.h"
#include "kernels/cpu/row_table.h"
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

// A product but for its x.
LinearTask task_of(const Weight& w, const TensorView& out) {
  return {.dtype = w.dtype,
          .table = code_table(w.dtype),
          .packed = w.packed,
          .tile_bytes = packed_tile_bytes(w.dtype, w.n_inputs),
          .n_outputs = w.n_outputs,
          .n_inputs = w.n_inputs,
          .n_pieces = w.pieces.n,
          .edges = w.pieces.edges.data(),
          .out_scale = w.out_scale,
          .fetches_into_second = core().fetches_into_second,
          .has_dot_a_cycle = core().has_dot_a_cycle,
          .out = reinterpret_cast<float*>(out.data),
          .out_stride = out.row_stride_bytes / static_cast<int64_t>(sizeof(float))};
}

// A product's outputs, by the weight's own scale where it has one.
void run(const LinearTask& task, int64_t row, int64_t row_end, int64_t tile, int64_t tile_end) {
  table().linear->product(task, row, row_end, tile, tile_end);
  if (task.out_scale == 1.0f) return;
  const int64_t n = tile * kTileOutputs, n_end = std::min(task.n_outputs, tile_end * kTileOutputs);
  for (; row < row_end; ++row) table().row->scale(task.out + row * task.out_stride + n, task.out_scale, n_end - n);
}

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
  const int64_t T = x.dim[0];
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
    tasks[j] = task_of(w, out[j]);
    tasks[j].x = x_data;
    tasks[j].x_stride = x_stride;
    tasks[j].x_bf16 = forms.bf16;
    tasks[j].x_int8 = forms.int8;
    first_task[j + 1] = first_task[j] + (n_tiles[j] + cut.n_tiles[j] - 1) / cut.n_tiles[j] * n_row_pieces;
  }
  s.team().parallel_for(first_task[weights.size()], [&](int64_t task, int) {
    size_t j = 0;
    while (task >= first_task[j + 1]) ++j;
    const int64_t piece = (task - first_task[j]) / n_row_pieces, row_piece = (task - first_task[j]) % n_row_pieces;
    const int64_t tile = piece * cut.n_tiles[j], row = row_piece * cut.n_rows;
    run(tasks[j], row, std::min(T, row + cut.n_rows), tile, std::min(n_tiles[j], tile + cut.n_tiles[j]));
  });
}

namespace {

// The rows of all experts in the forms that their weights read, one expert after the other in the workspace: an
// expert's rows lie as those of a product of its own.
struct ExpertForms {
  ExpertForms(std::byte* workspace, int64_t n_rows, int64_t K, bool gathers) : x(workspace, n_rows, K), bytes(x.bytes) {
    if (workspace != nullptr) gathered = reinterpret_cast<float*>(workspace + bytes);
    if (gathers) bytes += static_cast<size_t>(n_rows * K) * sizeof(float);
  }
  QuantisedRows int8_of(const ExpertRows& rows, int32_t e) const {
    QuantisedRows out = x.int8;
    out.n_rows = rows.n_rows_of(e);
    out.groups += rows.first_row[e] * out.n_groups;
    return out;
  }

  XForms x;
  float* gathered = nullptr;  // where floats are read as they are and a row is not its own
  size_t bytes = 0;
};

struct NeededForms {
  bool int8 = false, halves = false, bf16 = false, floats = false;
};
NeededForms needed_forms(const ExpertRows& rows, std::span<const std::span<const Weight>> experts) {
  NeededForms needed;
  for (const std::span<const Weight> all : experts) {
    for (int32_t e = 0; e < rows.n_experts; ++e) {
      if (rows.n_rows_of(e) == 0) continue;
      const DType dtype = all[static_cast<size_t>(e)].dtype;
      needed.int8 |= x_form(dtype) == XForm::kInt8;
      needed.bf16 |= x_form(dtype) == XForm::kBf16;
      needed.floats |= x_form(dtype) == XForm::kFloat;
      needed.halves |= block_layout(dtype).group_len == 16;
    }
  }
  return needed;
}

// How the products of experts are cut: each of all tasks takes so many tiles of one expert, and at most
// kMaxProductRows rows of it.
struct ExpertCut {
  int64_t n_tiles = 0;                                // of a task
  std::array<int64_t, kMaxExperts + 1> first_task{};  // of each expert
};
constexpr int64_t kTilesOfExpertPanel = 6, kExpertTasksPerThread = 8;
int64_t n_parts(int64_t n, int64_t size) { return (n + size - 1) / size; }

ExpertCut cut_experts(const ExpertRows& rows, std::span<const std::span<const Weight>> experts, int64_t n_threads) {
  const auto tasks_of = [&](int32_t e, int64_t n_tiles) {
    int64_t n = 0;
    for (const std::span<const Weight> all : experts)
      n += n_parts(n_parts(all.front().n_outputs, kTileOutputs), n_tiles);
    return n * n_parts(rows.n_rows_of(e), kMaxProductRows);
  };
  ExpertCut cut;
  int64_t n_panels = 0;
  for (int32_t e = 0; e < rows.n_experts; ++e) n_panels += tasks_of(e, kTilesOfExpertPanel);
  cut.n_tiles = std::max<int64_t>(1, n_panels / (kExpertTasksPerThread * n_threads)) * kTilesOfExpertPanel;
  for (int32_t e = 0; e < rows.n_experts; ++e) {
    const auto i = static_cast<size_t>(e);
    cut.first_task[i + 1] = cut.first_task[i] + tasks_of(e, cut.n_tiles);
  }
  return cut;
}

// The products of all groups of rows (ExpertRows, of which n_tokens, n_used, n_experts and first_row are read), each by
// weights of its own. from(row, e): the input of a row of group e, K long. task(j, e): product j of group e where it
// reads floats that lie as they are and writes its outputs. With `gathers` it reads copies.
template <typename From, typename Task>
void products_of_groups(Stream& s, const ExpertRows& rows, std::span<const std::span<const Weight>> weights,
                        ExpertForms forms, int64_t K, bool gathers, From&& from, Task&& task) {
  const LinearTable& kernels = *table().linear;
  const int64_t n_rows = rows.n_rows();
  const NeededForms needed = needed_forms(rows, weights);
  forms.x.int8.has_halves = needed.halves;
  const auto convert = [&](int64_t row, int64_t row_end) {
    for (int32_t e = rows.expert_of(row); row < row_end; ++row) {
      while (row >= rows.first_row[e + 1]) ++e;
      const float* const x = from(row, e);
      const int64_t in_group = row - rows.first_row[e];
      if (needed.int8) kernels.quantise_rows(forms.int8_of(rows, e), x, 0, in_group, in_group + 1);
      if (needed.bf16) kernels.round_rows(forms.x.bf16 + row * (K + K % 2), K, x, 0, 0, 1);
      if (gathers && needed.floats) {
        std::memcpy(forms.gathered + row * K, x, static_cast<size_t>(K) * sizeof(float));
      }
    }
  };
  if (needed.int8 || needed.bf16 || (gathers && needed.floats)) for_rows(s, n_rows, K, 4, convert);

  const ExpertCut cut = cut_experts(rows, weights, s.team().n_threads());
  s.team().parallel_for(cut.first_task[static_cast<size_t>(rows.n_experts)], [&](int64_t i, int) {
    const auto first = cut.first_task.begin();
    const auto e = static_cast<int32_t>(std::upper_bound(first, first + rows.n_experts, i) - first) - 1;
    const int64_t n_of = rows.n_rows_of(e), n_row_pieces = n_parts(n_of, kMaxProductRows);
    int64_t at = i - cut.first_task[static_cast<size_t>(e)];
    size_t j = 0;
    int64_t n_tiles = 0;
    for (;; ++j) {
      n_tiles = n_parts(weights[j].front().n_outputs, kTileOutputs);
      const int64_t n_tasks = n_parts(n_tiles, cut.n_tiles) * n_row_pieces;
      if (at < n_tasks) break;
      at -= n_tasks;
    }
    LinearTask product = task(j, e);
    if (gathers) {
      product.x = forms.gathered + rows.first_row[e] * K;
      product.x_stride = K;
    }
    product.x_bf16 = forms.x.bf16 + rows.first_row[e] * (K + K % 2);
    product.x_int8 = forms.int8_of(rows, e);
    const int64_t rows_of_piece = n_parts(n_parts(n_of, n_row_pieces), 8) * 8;
    const int64_t tile = at / n_row_pieces * cut.n_tiles, row = at % n_row_pieces * rows_of_piece;
    if (row >= n_of) return;
    run(product, row, std::min(n_of, row + rows_of_piece), tile, std::min(n_tiles, tile + cut.n_tiles));
  });
}

}  // namespace

size_t linear_experts_workspace_bytes(int64_t n_rows, int64_t n_inputs) {
  return ExpertForms(nullptr, n_rows, n_inputs, true).bytes;
}

void linear_experts(Stream& s, std::span<const TensorView> out, const TensorView& x, ops::ExpertInput input,
                    const ExpertRows& rows, std::span<const std::span<const Weight>> experts) {
  const int64_t n_rows = rows.n_rows(), K = x.dim[1];
  if (n_rows == 0 || experts.empty()) return;
  const bool of_token = input == ops::ExpertInput::kOfToken;
  const ExpertForms forms(s.workspace(linear_experts_workspace_bytes(n_rows, K)), n_rows, K, true);
  products_of_groups(
      s, rows, experts, forms, K, of_token,
      [&](int64_t row, int32_t) { return x.row_as<const float>(of_token ? rows.token[row] : row); },
      [&](size_t j, int32_t e) {
        TensorView to = out[j];
        to.data += rows.first_row[e] * to.row_stride_bytes;
        LinearTask product = task_of(experts[j][static_cast<size_t>(e)], to);
        product.x = x.row_as<const float>(of_token ? 0 : rows.first_row[e]);
        product.x_stride = x.row_stride_bytes / static_cast<int64_t>(sizeof(float));
        return product;
      });
}

size_t linear_heads_workspace_bytes(int64_t n_rows, int64_t n_heads, int64_t n_inputs) {
  return ExpertForms(nullptr, n_rows * n_heads, n_inputs, false).bytes;
}

void linear_heads(Stream& s, const TensorView& out, const TensorView& x, std::span<const Weight> weights) {
  const auto H = static_cast<int32_t>(weights.size());
  const int64_t T = x.dim[0], K = weights.front().n_inputs, in_len = x.row_len() / H, out_len = out.row_len() / H;
  if (T == 0) return;
  std::array<int32_t, kMaxExperts + 1> first_row;
  for (int32_t h = 0; h <= H; ++h) first_row[static_cast<size_t>(h)] = static_cast<int32_t>(h * T);
  const ExpertRows rows = {
      .n_tokens = static_cast<int32_t>(T), .n_used = H, .n_experts = H, .first_row = first_row.data()};
  const ExpertForms forms(s.workspace(linear_heads_workspace_bytes(T, H, K)), T * H, K, false);
  products_of_groups(
      s, rows, {&weights, 1}, forms, K, false,
      [&](int64_t row, int32_t h) { return x.row_as<const float>(row - h * T) + h * in_len; },
      [&](size_t, int32_t h) {
        LinearTask product =
            task_of(weights[static_cast<size_t>(h)], out.columns(h * out_len, weights.front().n_outputs));
        product.x = x.row_as<const float>(0) + h * in_len;
        product.x_stride = x.row_stride_bytes / static_cast<int64_t>(sizeof(float));
        return product;
      });
}

}  // namespace ibid::cpu
