// Ops that treat each row by itself: norms, sums, activations, soft cap, log-softmax, gathering.
#include <cstring>

#include "kernels/cpu/row_table.h"
#include "kernels/cpu/table.h"
#include "kernels/cuda/cuda_ops.h"
#include "kernels/for_rows.h"
#include "kernels/ops.h"
#include "kernels/reference/reference.h"

namespace ibid::ops {
namespace {

// An activation's cost against an addition's.
constexpr int kExpWeight = 8;

void expect_f32(std::initializer_list<const TensorView*> views) {
  for (const TensorView* v : views) CHECK(v->dtype == DType::kF32, "activations are F32");
}

using Binary = void (*)(float*, const float*, const float*, int64_t);
void binary(Stream& s, const TensorView& out, const TensorView& x, const TensorView& y, int weight, Binary row) {
  Dim T, C;
  expect(out, {&T, &C});
  expect(x, {&T, &C});
  expect(y, {&T, &C});
  expect_f32({&out, &x, &y});
  for_rows(s, T.value, C.value, weight, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) row(out.row_as<float>(i), x.row_as<float>(i), y.row_as<float>(i), C.value);
  });
}

}  // namespace

void rms_norm(Stream& s, const TensorView& out, const TensorView& x, const TensorView& weight, float eps) {
  Dim T, C;
  expect(out, {&T, &C});
  expect(x, {&T, &C});
  expect(weight, {&C});
  expect_f32({&out, &x, &weight});
  if (s.device() == Device::kCuda) return cuda::rms_norm(s, out, x, weight, eps);
  if (reference::selected()) return reference::rms_norm(out, x, weight, eps);
  const auto* w = reinterpret_cast<const float*>(weight.data);
  const auto row = cpu::table().row->rms_norm;
  for_rows(s, T.value, C.value, 2, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) row(out.row_as<float>(i), x.row_as<float>(i), w, C.value, eps);
  });
}

void add_rms_norm(Stream& s, const TensorView& out, const TensorView& x, const TensorView& y, const TensorView& weight,
                  float eps) {
  Dim T, C;
  expect(out, {&T, &C});
  expect(x, {&T, &C});
  expect(y, {&T, &C});
  expect(weight, {&C});
  expect_f32({&out, &x, &y, &weight});
  CHECK(out.data != x.data, "add_rms_norm keeps the sum in x");
  if (reference::selected()) return reference::add_rms_norm(out, x, y, weight, eps);
  const auto* w = reinterpret_cast<const float*>(weight.data);
  const auto row = cpu::table().row->add_rms_norm;
  for_rows(s, T.value, C.value, 2, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      row(out.row_as<float>(i), x.row_as<float>(i), y.row_as<float>(i), w, C.value, eps);
    }
  });
}

void add_bias(Stream& s, const TensorView& x, const TensorView& bias) {
  Dim T, N;
  expect(x, {&T, &N});
  expect(bias, {&N});
  expect_f32({&x, &bias});
  if (reference::selected()) return reference::add_bias(x, bias);
  const auto* b = reinterpret_cast<const float*>(bias.data);
  const auto row = cpu::table().row->add;
  for_rows(s, T.value, N.value, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) row(x.row_as<float>(i), b, N.value);
  });
}

void add(Stream& s, const TensorView& x, const TensorView& y) {
  Dim T, C;
  expect(x, {&T, &C});
  expect(y, {&T, &C});
  expect_f32({&x, &y});
  if (reference::selected()) return reference::add(x, y);
  const auto row = cpu::table().row->add;
  for_rows(s, T.value, C.value, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) row(x.row_as<float>(i), y.row_as<float>(i), C.value);
  });
}

void scale(Stream& s, const TensorView& x, float factor) {
  expect_f32({&x});
  if (reference::selected()) return reference::scale(x, factor);
  const auto row = cpu::table().row->scale;
  for_rows(s, x.n_rows(), x.row_len(), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) row(x.row_as<float>(i), factor, x.row_len());
  });
}

void silu_mul(Stream& s, const TensorView& out, const TensorView& gate, const TensorView& up) {
  if (reference::selected()) return reference::silu_mul(out, gate, up);
  binary(s, out, gate, up, kExpWeight, cpu::table().row->silu_mul);
}

void gelu_mul(Stream& s, const TensorView& out, const TensorView& gate, const TensorView& up) {
  if (reference::selected()) return reference::gelu_mul(out, gate, up);
  binary(s, out, gate, up, kExpWeight, cpu::table().row->gelu_mul);
}

void soft_cap(Stream& s, const TensorView& logits, float cap) {
  expect_f32({&logits});
  CHECK(cap > 0.0f);
  if (reference::selected()) return reference::soft_cap(logits, cap);
  const auto row = cpu::table().row->soft_cap;
  for_rows(s, logits.n_rows(), logits.row_len(), kExpWeight, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) row(logits.row_as<float>(i), cap, logits.row_len());
  });
}

void log_softmax(Stream& s, const TensorView& out, const TensorView& logits) {
  Dim R, V;
  expect(out, {&R, &V});
  expect(logits, {&R, &V});
  expect_f32({&out, &logits});
  if (reference::selected()) return reference::log_softmax(out, logits);
  const auto row = cpu::table().row->log_softmax;
  for_rows(s, R.value, V.value, kExpWeight, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) row(out.row_as<float>(i), logits.row_as<float>(i), V.value);
  });
}

void gather_rows(Stream& s, const TensorView& out, const TensorView& x, std::span<const int32_t> rows) {
  Dim R, C, T;
  expect(out, {&R, &C});
  expect(x, {&T, &C});
  expect_f32({&out, &x});
  CHECK(R.value == static_cast<int64_t>(rows.size()), "one row of out for each index");
  for_rows(s, R.value, C.value, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int32_t row = rows[static_cast<size_t>(i)];
      CHECK(row >= 0 && row < T.value);
      std::memcpy(out.row(i), x.row(row), static_cast<size_t>(C.value) * sizeof(float));
    }
  });
}

}  // namespace ibid::ops
