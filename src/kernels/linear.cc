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

size_t linear_experts_workspace_bytes(int64_t n_rows, int64_t n_inputs) {
  return cpu::linear_experts_workspace_bytes(n_rows, n_inputs);
}

namespace {

OpWork work_of_experts(const ExpertRows& rows, std::span<const std::span<const Weight>> experts) {
  OpWork work;
  for (const std::span<const Weight> all : experts) {
    for (int32_t e = 0; e < rows.n_experts; ++e) {
      if (rows.n_rows_of(e) == 0) continue;
      const Weight* const w = &all[static_cast<size_t>(e)];
      const OpWork one = work_of(rows.n_rows_of(e), {&w, 1});
      for (size_t u = 0; u < kMacUnits; ++u) work.macs[u] += one.macs[u];
      work.bytes += one.bytes;
    }
    work.n_outputs += all.front().n_outputs;
    work.n_inputs = all.front().n_inputs;
  }
  return work;
}

void linear_experts_reference(Stream& s, const TensorView& out, const TensorView& x, ExpertInput input,
                              const ExpertRows& rows, std::span<const Weight> experts) {
  s.team().parallel_for(rows.n_rows(), [&](int64_t row, int) {
    const auto e = static_cast<size_t>(rows.expert_of(row));
    const int64_t from = input == ExpertInput::kOfRow ? row : rows.token[row];
    const TensorView y(out.row(row), DType::kF32, {1, out.row_len()}), of(x.row(from), DType::kF32, {1, x.row_len()});
    reference::linear(y, of, experts[e], 0, experts[e].n_outputs);
  });
}

}  // namespace

void linear_experts(Stream& s, std::span<const TensorView> out, const TensorView& x, ExpertInput input,
                    const ExpertRows& rows, std::span<const std::span<const Weight>> experts) {
  CHECK(out.size() == experts.size() && experts.size() <= kMaxExpertWeights, "one output for each product");
  CHECK(rows.n_experts >= 1 && rows.n_experts <= kMaxExperts, "experts of a layer");
  CHECK(x.dtype == DType::kF32, "activations are F32");
  Dim T{input == ExpertInput::kOfRow ? rows.n_rows() : rows.n_tokens}, R{rows.n_rows()}, K;
  expect(x, {&T, &K});
  for (size_t j = 0; j < out.size(); ++j) {
    CHECK(static_cast<int32_t>(experts[j].size()) == rows.n_experts, "a weight for each expert");
    Dim N{experts[j].front().n_outputs};
    expect(out[j], {&R, &N});
    CHECK(out[j].dtype == DType::kF32, "activations are F32");
    for (const Weight& w : experts[j]) CHECK(w.n_outputs == N.value && w.n_inputs == K.value, "shapes disagree");
  }
  on_device(
      s, "linear_experts", [&] { cpu::linear_experts(s, out, x, input, rows, experts); },
      [&] {
        for (size_t j = 0; j < out.size(); ++j) linear_experts_reference(s, out[j], x, input, rows, experts[j]);
      },
      kNoBody, [&] { return work_of_experts(rows, experts); });
}

size_t linear_heads_workspace_bytes(int64_t n_rows, int64_t n_heads, int64_t n_inputs) {
  return cpu::linear_heads_workspace_bytes(n_rows, n_heads, n_inputs);
}

namespace {

OpWork work_of_heads(int64_t n_rows, std::span<const Weight> weights) {
  OpWork work;
  for (const Weight& weight : weights) {
    const Weight* const w = &weight;
    const OpWork one = work_of(n_rows, {&w, 1});
    for (size_t u = 0; u < kMacUnits; ++u) work.macs[u] += one.macs[u];
    work.bytes += one.bytes;
    work.n_outputs += one.n_outputs;
    work.n_inputs = one.n_inputs;
  }
  return work;
}

void linear_heads_reference(Stream& s, const TensorView& out, const TensorView& x, std::span<const Weight> weights) {
  const auto H = static_cast<int64_t>(weights.size());
  s.team().parallel_for(H, [&](int64_t h, int) {
    const Weight& w = weights[static_cast<size_t>(h)];
    reference::linear(out.columns(h * (out.row_len() / H), w.n_outputs), x.columns(h * (x.row_len() / H), w.n_inputs),
                      w, 0, w.n_outputs);
  });
}

}  // namespace

void linear_heads(Stream& s, const TensorView& out, const TensorView& x, std::span<const Weight> weights) {
  const auto H = static_cast<int64_t>(weights.size());
  CHECK(H >= 1 && weights.size() <= kMaxLinearHeads, "a weight for each head");
  CHECK(out.dtype == DType::kF32 && x.dtype == DType::kF32, "activations are F32");
  Dim T, N, M;
  expect(out, {&T, &N});
  expect(x, {&T, &M});
  CHECK(N.value % H == 0 && M.value % H == 0, "a row is a whole number of heads");
  for (const Weight& w : weights) {
    CHECK(w.n_outputs == weights.front().n_outputs && w.n_inputs == weights.front().n_inputs &&
              w.n_outputs <= N.value / H && w.n_inputs <= M.value / H,
          "shapes disagree");
  }
  on_device(
      s, "linear_heads", [&] { cpu::linear_heads(s, out, x, weights); },
      [&] { linear_heads_reference(s, out, x, weights); }, kNoBody, [&] { return work_of_heads(T.value, weights); });
}

}  // namespace ibid::ops
