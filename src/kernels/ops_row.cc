// Ops that treat each row by itself: norms, sums, activations, soft cap, log-softmax, gathering.
#include "kernels/cpu/cpu_ops.h"
#include "kernels/on_device.h"
#include "kernels/ops.h"

namespace ibid::ops {
namespace {

void expect_f32(std::initializer_list<const TensorView*> views) {
  for (const TensorView* v : views) CHECK(v->dtype == DType::kF32, "activations are F32");
}

// All are [T, C] and F32.
void expect_alike(std::initializer_list<const TensorView*> views) {
  Dim T, C;
  for (const TensorView* v : views) expect(*v, {&T, &C});
  expect_f32(views);
}

void expect_vector(const TensorView& vector, const TensorView& rows) {
  Dim C{rows.row_len()};
  expect(vector, {&C});
  expect_f32({&vector});
}

}  // namespace

void rms_norm(Stream& s, const TensorView& out, const TensorView& x, const TensorView& weight, float eps) {
  expect_alike({&out, &x});
  expect_vector(weight, x);
  on_device(
      s, "rms_norm", [&] { cpu::rms_norm(s, out, x, weight, eps); }, [&] { reference::rms_norm(out, x, weight, eps); },
      kNoBody);
}

void add_rms_norm(Stream& s, const TensorView& out, const TensorView& x, const TensorView& y, const TensorView& weight,
                  float eps) {
  expect_alike({&out, &x, &y});
  expect_vector(weight, x);
  CHECK(out.data != x.data, "add_rms_norm keeps the sum in x");
  on_device(
      s, "add_rms_norm", [&] { cpu::add_rms_norm(s, out, x, y, weight, eps); },
      [&] { reference::add_rms_norm(out, x, y, weight, eps); }, kNoBody);
}

void layer_norm(Stream& s, const TensorView& out, const TensorView& x, const TensorView& weight, const TensorView& bias,
                float eps) {
  expect_alike({&out, &x});
  expect_vector(weight, x);
  expect_vector(bias, x);
  on_device(
      s, "layer_norm", [&] { cpu::layer_norm(s, out, x, weight, bias, eps); },
      [&] { reference::layer_norm(out, x, weight, bias, eps); }, kNoBody);
}

void add_bias(Stream& s, const TensorView& x, const TensorView& bias) {
  expect_alike({&x});
  expect_vector(bias, x);
  on_device(
      s, "add_bias", [&] { cpu::add_bias(s, x, bias); }, [&] { reference::add_bias(x, bias); }, kNoBody);
}

void add(Stream& s, const TensorView& x, const TensorView& y) {
  expect_alike({&x, &y});
  on_device(
      s, "add", [&] { cpu::add(s, x, y); }, [&] { reference::add(x, y); }, kNoBody);
}

void scale(Stream& s, const TensorView& x, float factor) {
  expect_f32({&x});
  on_device(
      s, "scale", [&] { cpu::scale(s, x, factor); }, [&] { reference::scale(x, factor); }, kNoBody);
}

void scale_by_position(Stream& s, const TensorView& x, std::span<const int32_t> positions, float slope,
                       int64_t length) {
  expect_f32({&x});
  CHECK(x.n_rows() == std::ssize(positions) && length > 0, "one position a row");
  on_device(
      s, "scale_by_position", [&] { cpu::scale_by_position(s, x, positions, slope, length); },
      [&] { reference::scale_by_position(x, positions, slope, length); }, kNoBody);
}

void silu_mul(Stream& s, const TensorView& out, const TensorView& gate, const TensorView& up) {
  expect_alike({&out, &gate, &up});
  on_device(
      s, "silu_mul", [&] { cpu::silu_mul(s, out, gate, up); }, [&] { reference::silu_mul(out, gate, up); }, kNoBody);
}

void gelu_mul(Stream& s, const TensorView& out, const TensorView& gate, const TensorView& up) {
  expect_alike({&out, &gate, &up});
  on_device(
      s, "gelu_mul", [&] { cpu::gelu_mul(s, out, gate, up); }, [&] { reference::gelu_mul(out, gate, up); }, kNoBody);
}

void clamped_silu_mul(Stream& s, const TensorView& out, const TensorView& gate, const TensorView& up, float limit) {
  expect_alike({&out, &gate, &up});
  CHECK(limit > 0.0f);
  on_device(
      s, "clamped_silu_mul", [&] { cpu::clamped_silu_mul(s, out, gate, up, limit); },
      [&] { reference::clamped_silu_mul(out, gate, up, limit); }, kNoBody);
}

void gelu(Stream& s, const TensorView& out, const TensorView& x) {
  expect_alike({&out, &x});
  on_device(
      s, "gelu", [&] { cpu::gelu(s, out, x); }, [&] { reference::gelu(out, x); }, kNoBody);
}

void gelu_tanh(Stream& s, const TensorView& out, const TensorView& x) {
  expect_alike({&out, &x});
  on_device(
      s, "gelu_tanh", [&] { cpu::gelu_tanh(s, out, x); }, [&] { reference::gelu_tanh(out, x); }, kNoBody);
}

void tanh(Stream& s, const TensorView& out, const TensorView& x) {
  expect_alike({&out, &x});
  on_device(
      s, "tanh", [&] { cpu::tanh(s, out, x); }, [&] { reference::tanh(out, x); }, kNoBody);
}

void relu_squared(Stream& s, const TensorView& out, const TensorView& x) {
  expect_alike({&out, &x});
  on_device(
      s, "relu_squared", [&] { cpu::relu_squared(s, out, x); }, [&] { reference::relu_squared(out, x); }, kNoBody);
}

void clamp(Stream& s, const TensorView& x, float limit) {
  expect_f32({&x});
  CHECK(limit > 0.0f);
  on_device(
      s, "clamp", [&] { cpu::clamp(s, x, limit); }, [&] { reference::clamp(x, limit); }, kNoBody);
}

void soft_cap(Stream& s, const TensorView& logits, float cap) {
  expect_f32({&logits});
  CHECK(cap > 0.0f);
  on_device(
      s, "soft_cap", [&] { cpu::soft_cap(s, logits, cap); }, [&] { reference::soft_cap(logits, cap); }, kNoBody);
}

void log_softmax(Stream& s, const TensorView& out, const TensorView& logits) {
  expect_alike({&out, &logits});
  on_device(
      s, "log_softmax", [&] { cpu::log_softmax(s, out, logits); }, [&] { reference::log_softmax(out, logits); },
      kNoBody);
}

void put_rows(Stream& s, const TensorView& x, std::span<const float* const> rows, int64_t from) {
  expect_alike({&x});
  CHECK(static_cast<int64_t>(rows.size()) == x.n_rows() && from >= 0);
  on_device(
      s, "put_rows", [&] { cpu::put_rows(x, rows, from); }, kSameAsCpu, kNoBody);
}

void add_rows(Stream& s, const TensorView& x, std::span<const float* const> rows, int64_t from) {
  expect_alike({&x});
  CHECK(static_cast<int64_t>(rows.size()) == x.n_rows() && from >= 0);
  on_device(
      s, "add_rows", [&] { cpu::add_rows(x, rows, from); }, kSameAsCpu, kNoBody);
}

void gather_rows(Stream& s, const TensorView& out, const TensorView& x, std::span<const int32_t> rows) {
  Dim R{static_cast<int64_t>(rows.size())}, C, T;  // one row of out for each index
  expect(out, {&R, &C});
  expect(x, {&T, &C});
  expect_f32({&out, &x});
  on_device(
      s, "gather_rows", [&] { cpu::gather_rows(s, out, x, rows); }, kSameAsCpu, kNoBody);
}

void copy_rows(Stream& s, const TensorView& out, std::span<const int32_t> out_rows, const TensorView& x,
               std::span<const int32_t> rows) {
  Dim C, N, T;
  expect(out, {&N, &C});
  expect(x, {&T, &C});
  expect_f32({&out, &x});
  CHECK(out_rows.size() == rows.size() && std::ssize(rows) <= out.n_rows());
  on_device(
      s, "copy_rows", [&] { cpu::copy_rows(s, out, out_rows, x, rows); }, kSameAsCpu, kNoBody);
}

void copy_heads(Stream& s, const TensorView& out, const TensorView& x, int64_t n_heads, const HeadColumns& c) {
  Dim T, N, M;
  expect(out, {&T, &N});
  expect(x, {&T, &M});
  expect_f32({&out, &x});
  CHECK(n_heads >= 1 && N.value % n_heads == 0 && M.value % n_heads == 0, "a row is a whole number of heads");
  CHECK(c.len >= 0 && c.to >= 0 && c.from >= 0 && c.to + c.len <= N.value / n_heads &&
            c.from + c.len <= M.value / n_heads,
        "columns of a head");
  on_device(
      s, "copy_heads", [&] { cpu::copy_heads(s, out, x, n_heads, c); }, kSameAsCpu, kNoBody);
}

}  // namespace ibid::ops
