// The CPU's bodies of the ops, over tables of the selected instruction set (cpu/table.h). kernels/ops.h has the
// formulas; the ops have checked shapes and dtypes before they call these.
#pragma once

#include <span>

#include "base/ids.h"
#include "kernels/forward_batch.h"
#include "kernels/ops.h"
#include "kernels/paged_kv.h"
#include "kernels/weight.h"
#include "tensor/stream.h"
#include "tensor/tensor.h"

namespace ibid::cpu {

// cpu/embed.cc
void embed(Stream& s, const TensorView& out, const Weight& weight, std::span<const TokenId> tokens, float scale);

// cpu/row.cc
void rms_norm(Stream& s, const TensorView& out, const TensorView& x, const TensorView& weight, float eps);
void add_rms_norm(Stream& s, const TensorView& out, const TensorView& x, const TensorView& y, const TensorView& weight,
                  float eps);
void layer_norm(Stream& s, const TensorView& out, const TensorView& x, const TensorView& weight, const TensorView& bias,
                float eps);
void add_bias(Stream& s, const TensorView& x, const TensorView& bias);
void add(Stream& s, const TensorView& x, const TensorView& y);
void scale(Stream& s, const TensorView& x, float factor);
void scale_by_position(Stream& s, const TensorView& x, std::span<const int32_t> positions, float slope, int64_t length);
void silu_mul(Stream& s, const TensorView& out, const TensorView& gate, const TensorView& up);
void gelu_mul(Stream& s, const TensorView& out, const TensorView& gate, const TensorView& up);
void clamped_silu_mul(Stream& s, const TensorView& out, const TensorView& gate, const TensorView& up, float limit);
void gelu(Stream& s, const TensorView& out, const TensorView& x);
void gelu_tanh(Stream& s, const TensorView& out, const TensorView& x);
void tanh(Stream& s, const TensorView& out, const TensorView& x);
void relu_squared(Stream& s, const TensorView& out, const TensorView& x);
void clamp(Stream& s, const TensorView& x, float limit);
void soft_cap(Stream& s, const TensorView& logits, float cap);
void log_softmax(Stream& s, const TensorView& out, const TensorView& logits);
void put_rows(const TensorView& x, std::span<const float* const> rows, int64_t from);
void add_rows(const TensorView& x, std::span<const float* const> rows, int64_t from);
void gather_rows(Stream& s, const TensorView& out, const TensorView& x, std::span<const int32_t> rows);
void copy_rows(Stream& s, const TensorView& out, std::span<const int32_t> out_rows, const TensorView& x,
               std::span<const int32_t> rows);
void copy_heads(Stream& s, const TensorView& out, const TensorView& x, int64_t n_heads,
                const ops::HeadColumns& columns);

// cpu/linear.cc
void linear(Stream& s, std::span<const TensorView> out, const TensorView& x, std::span<const Weight* const> weights);
size_t linear_workspace_bytes(int64_t n_rows, int64_t n_inputs);

void linear_experts(Stream& s, std::span<const TensorView> out, const TensorView& x, ops::ExpertInput input,
                    const ExpertRows& rows, std::span<const std::span<const Weight>> experts);
size_t linear_experts_workspace_bytes(int64_t n_rows, int64_t n_inputs);
void linear_heads(Stream& s, const TensorView& out, const TensorView& x, std::span<const Weight> weights);
size_t linear_heads_workspace_bytes(int64_t n_rows, int64_t n_heads, int64_t n_inputs);

// cpu/experts.cc
void route(Stream& s, const ExpertRows& rows, const TensorView& logits, const Router& router);
void add_experts(Stream& s, const TensorView& out, const TensorView& y, const ExpertRows& rows);
void add_expert_bias(Stream& s, const TensorView& x, const TensorView& bias, const ExpertRows& rows);
void gate_rows(Stream& s, const TensorView& x, const TensorView& gate);

// cpu/recurrent.cc
void short_conv(Stream& s, const TensorView& out, const TensorView& in, const TensorView& taps,
                const ForwardBatch& batch, const LayerStates& states);
void conv_silu(Stream& s, const TensorView& out, const TensorView& x, const TensorView& taps, const TensorView& bias,
               const ForwardBatch& batch, const LayerStates& states);
size_t conv_workspace_bytes(const Stream& s, int64_t n_taps, int64_t n_channels);
void delta_net(Stream& s, const TensorView& out, const ops::DeltaInputs& in, const DeltaHeads& heads,
               const ForwardBatch& batch, const LayerStates& states);
size_t delta_net_workspace_bytes(const Stream& s, const DeltaHeads& heads);
void ssm_scan(Stream& s, const TensorView& out, const ops::SsmInputs& in, const SsmHeads& heads,
              const ForwardBatch& batch, const LayerStates& states);
size_t ssm_scan_workspace_bytes(const Stream& s, const SsmHeads& heads);
void l2_norm(Stream& s, const TensorView& x, int64_t head_len, float eps, float scale);
void sigmoid_mul(Stream& s, const TensorView& out, const TensorView& x, const TensorView& gate);
void part_groups(Stream& s, std::span<const TensorView> out, const TensorView& x, int64_t n_groups);

// cpu/rope.cc
void rope_angles(Stream& s, const TensorView& cos_sin, const ops::Rope& rope, std::span<const int32_t> positions);
void rope(Stream& s, const TensorView& x, int head_len, const ops::Rope& rope, const TensorView& cos_sin);

// cpu/keep_rows.cc
void keep_rows(Stream& s, const TensorView& q, const PagedKv& kv, const ForwardBatch& batch, float scale);
size_t keep_rows_workspace_bytes(const Stream& s, int32_t group, int32_t key_len, int32_t max_positions);

// cpu/store_kv.cc
void store_kv(Stream& s, const PagedKv& kv, const TensorView& k, const TensorView& v, const ForwardBatch& batch);
void store_latent(Stream& s, const PagedKv& kv, const TensorView& rows, const ForwardBatch& batch);
void copy_slots(Stream& s, const PagedKv& kv, std::span<const int32_t> from, std::span<const int32_t> to);
void copy_block(const PagedKv& kv, BlockId from, BlockId to);

// cpu/paged_attention.cc
void paged_attention(Stream& s, const TensorView& out, const TensorView& q, const PagedKv& kv,
                     const ForwardBatch& batch, const ops::AttentionParams& params);
size_t paged_attention_workspace_bytes(int32_t n_tokens, int32_t n_heads, int32_t value_len, int32_t max_positions);

}  // namespace ibid::cpu
