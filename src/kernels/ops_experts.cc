#include "kernels/cpu/cpu_ops.h"
#include "kernels/on_device.h"
#include "kernels/ops.h"

namespace ibid::ops {
namespace {

void expect_rows(const ExpertRows& rows) {
  CHECK(rows.n_experts >= 1 && rows.n_experts <= kMaxExperts, "experts of a layer");
  CHECK(rows.n_used >= 1 && rows.n_used <= kMaxExpertsUsed && rows.n_used <= rows.n_experts, "experts of a token");
}

void expect_floats(const TensorView& x) { CHECK(x.dtype == DType::kF32, "activations are F32"); }

}  // namespace

void route(Stream& s, const ExpertRows& rows, const TensorView& logits, const Router& router) {
  expect_rows(rows);
  Dim T{rows.n_tokens}, E{rows.n_experts};
  expect(logits, {&T, &E});
  expect_floats(logits);
  CHECK(router.n_groups >= 1 && router.n_groups <= kMaxExpertGroups && rows.n_experts % router.n_groups == 0,
        "groups of as many experts each");
  CHECK(router.groups_used >= 1 && router.groups_used <= router.n_groups &&
            rows.n_used <= rows.n_experts / router.n_groups * router.groups_used,
        "the used groups have experts enough");
  on_device(
      s, "route", [&] { cpu::route(s, rows, logits, router); }, [&] { reference::route(rows, logits, router); },
      kNoBody);
}

void add_experts(Stream& s, const TensorView& out, const TensorView& y, const ExpertRows& rows) {
  expect_rows(rows);
  Dim T{rows.n_tokens}, C, R{rows.n_rows()};
  expect(out, {&T, &C});
  expect(y, {&R, &C});
  expect_floats(out);
  expect_floats(y);
  on_device(
      s, "add_experts", [&] { cpu::add_experts(s, out, y, rows); }, [&] { reference::add_experts(out, y, rows); },
      kNoBody);
}

void add_expert_bias(Stream& s, const TensorView& x, const TensorView& bias, const ExpertRows& rows) {
  expect_rows(rows);
  Dim R{rows.n_rows()}, E{rows.n_experts}, N;
  expect(x, {&R, &N});
  expect(bias, {&E, &N});
  expect_floats(x);
  expect_floats(bias);
  on_device(
      s, "add_expert_bias", [&] { cpu::add_expert_bias(s, x, bias, rows); },
      [&] { reference::add_expert_bias(x, bias, rows); }, kNoBody);
}

void gate_rows(Stream& s, const TensorView& x, const TensorView& gate) {
  Dim T, C, one{1};
  expect(x, {&T, &C});
  expect(gate, {&T, &one});
  expect_floats(x);
  expect_floats(gate);
  on_device(
      s, "gate_rows", [&] { cpu::gate_rows(s, x, gate); }, [&] { reference::gate_rows(x, gate); }, kNoBody);
}

}  // namespace ibid::ops
