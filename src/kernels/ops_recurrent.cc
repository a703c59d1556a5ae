// Ops of recurrent layers.
#include "kernels/cpu/cpu_ops.h"
#include "kernels/on_device.h"
#include "kernels/ops.h"

namespace ibid::ops {
namespace {

void expect_all_f32(std::initializer_list<const TensorView*> views) {
  for (const TensorView* v : views) CHECK(v->dtype == DType::kF32, "activations are F32");
}

void expect_states(const ForwardBatch& batch, const LayerStates& states, int64_t n_values) {
  CHECK(batch.state_in != nullptr && batch.state_out != nullptr, "a batch that names no recurrent states");
  CHECK(states.n_values == n_values, "states of another layer");
}

void expect_conv(const TensorView& out, const TensorView& taps, const ForwardBatch& batch, const LayerStates& states) {
  Dim T{batch.n_tokens}, N, L;
  expect(out, {&T, &N});
  expect(taps, {&L, &N});
  expect_all_f32({&out, &taps});
  CHECK(L.value >= 2 && taps.is_contiguous(), "a convolution of two taps or more");
  expect_states(batch, states, (L.value - 1) * N.value);
}

OpWork work_of_conv(const TensorView& out, const TensorView& taps) {
  OpWork work;
  work.macs[static_cast<size_t>(MacUnit::kFp32)] = out.n_rows() * taps.n_elements();
  return work;
}

}  // namespace

void short_conv(Stream& s, const TensorView& out, const TensorView& in, const TensorView& taps,
                const ForwardBatch& batch, const LayerStates& states) {
  expect_conv(out, taps, batch, states);
  Dim T{batch.n_tokens}, N3{3 * out.row_len()};
  expect(in, {&T, &N3});
  expect_all_f32({&in});
  on_device(
      s, "short_conv", [&] { cpu::short_conv(s, out, in, taps, batch, states); },
      [&] { reference::short_conv(out, in, taps, batch, states); }, kNoBody, [&] { return work_of_conv(out, taps); });
}

void conv_silu(Stream& s, const TensorView& out, const TensorView& x, const TensorView& taps, const TensorView& bias,
               const ForwardBatch& batch, const LayerStates& states) {
  expect_conv(out, taps, batch, states);
  Dim T{batch.n_tokens}, N{out.row_len()};
  expect(x, {&T, &N});
  expect_all_f32({&x});
  if (bias.rank != 0) {
    expect(bias, {&N});
    expect_all_f32({&bias});
  }
  on_device(
      s, "conv_silu", [&] { cpu::conv_silu(s, out, x, taps, bias, batch, states); },
      [&] { reference::conv_silu(out, x, taps, bias, batch, states); }, kNoBody,
      [&] { return work_of_conv(out, taps); });
}

size_t conv_workspace_bytes(const Stream& s, int64_t n_taps, int64_t n_channels) {
  return cpu::conv_workspace_bytes(s, n_taps, n_channels);
}

void delta_net(Stream& s, const TensorView& out, const DeltaInputs& in, const DeltaHeads& heads,
               const ForwardBatch& batch, const LayerStates& states) {
  CHECK(heads.n_key_heads >= 1 && heads.n_value_heads % heads.n_key_heads == 0,
        "each key head has as many value heads");
  Dim T{batch.n_tokens}, V{heads.v_len()}, N{heads.qkv_len()}, H{heads.n_value_heads};
  expect(out, {&T, &V});
  expect(in.qkv, {&T, &N});
  expect(in.a, {&T, &H});
  expect(in.b, {&T, &H});
  expect(in.decay, {&H});
  expect(in.bias, {&H});
  expect_all_f32({&out, &in.qkv, &in.a, &in.b, &in.decay, &in.bias});
  expect_states(batch, states, heads.state_len());
  on_device(
      s, "delta_net", [&] { cpu::delta_net(s, out, in, heads, batch, states); },
      [&] { reference::delta_net(out, in, heads, batch, states); }, kNoBody,
      [&] {
        OpWork work;
        work.macs[static_cast<size_t>(MacUnit::kFp32)] = 3 * batch.n_tokens * heads.state_len();
        work.bytes = 2 * batch.n_sequences * heads.state_len() * static_cast<int64_t>(sizeof(float));
        return work;
      });
}

size_t delta_net_workspace_bytes(const Stream& s, const DeltaHeads& heads) {
  return cpu::delta_net_workspace_bytes(s, heads);
}

void ssm_scan(Stream& s, const TensorView& out, const SsmInputs& in, const SsmHeads& heads, const ForwardBatch& batch,
              const LayerStates& states) {
  CHECK(heads.n_groups >= 1 && heads.n_heads % heads.n_groups == 0, "each group has as many heads");
  Dim T{batch.n_tokens}, X{heads.x_len()}, N{heads.xbc_len()}, H{heads.n_heads};
  expect(out, {&T, &X});
  expect(in.xbc, {&T, &N});
  expect(in.dt, {&T, &H});
  for (const TensorView* v : {&in.decay, &in.bias, &in.skip}) expect(*v, {&H});
  expect_all_f32({&out, &in.xbc, &in.dt, &in.decay, &in.bias, &in.skip});
  expect_states(batch, states, heads.n_values());
  on_device(
      s, "ssm_scan", [&] { cpu::ssm_scan(s, out, in, heads, batch, states); },
      [&] { reference::ssm_scan(out, in, heads, batch, states); }, kNoBody,
      [&] {
        OpWork work;
        work.macs[static_cast<size_t>(MacUnit::kFp32)] = 2 * batch.n_tokens * heads.n_values();
        work.bytes = 2 * batch.n_sequences * heads.n_values() * static_cast<int64_t>(sizeof(float));
        return work;
      });
}

size_t ssm_scan_workspace_bytes(const Stream& s, const SsmHeads& heads) {
  return cpu::ssm_scan_workspace_bytes(s, heads);
}

void l2_norm(Stream& s, const TensorView& x, int64_t head_len, float eps, float scale) {
  Dim T, N;
  expect(x, {&T, &N});
  expect_all_f32({&x});
  CHECK(head_len >= 1 && N.value % head_len == 0, "whole heads");
  on_device(
      s, "l2_norm", [&] { cpu::l2_norm(s, x, head_len, eps, scale); },
      [&] { reference::l2_norm(x, head_len, eps, scale); }, kNoBody);
}

void sigmoid_mul(Stream& s, const TensorView& out, const TensorView& x, const TensorView& gate) {
  Dim T, N;
  for (const TensorView* v : {&out, &x, &gate}) expect(*v, {&T, &N});
  expect_all_f32({&out, &x, &gate});
  on_device(
      s, "sigmoid_mul", [&] { cpu::sigmoid_mul(s, out, x, gate); }, [&] { reference::sigmoid_mul(out, x, gate); },
      kNoBody);
}

void part_groups(Stream& s, std::span<const TensorView> out, const TensorView& x, int64_t n_groups) {
  CHECK(!out.empty() && out.size() <= kMaxGroupParts && n_groups >= 1);
  Dim T;
  int64_t n_columns = 0;
  for (const TensorView& part : out) {
    Dim N;
    expect(part, {&T, &N});
    expect_all_f32({&part});
    CHECK(N.value % n_groups == 0, "as many columns of each group");
    n_columns += N.value;
  }
  Dim all{n_columns};
  expect(x, {&T, &all});
  expect_all_f32({&x});
  on_device(
      s, "part_groups", [&] { cpu::part_groups(s, out, x, n_groups); }, kSameAsCpu, kNoBody);
}

}  // namespace ibid::ops
