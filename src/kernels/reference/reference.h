// The reference: every op in double precision, one plain loop per formula, no thread, no vector. It is the
// specification and the test oracle. Signatures follow kernels/ops.h without the stream; activations may be F32 or F64,
// so that fused ops are compositions of plain ones without rounding in between.
//
// With reference::select(true) (kernels/reference.h) the ops of kernels/ops.h run on these instead of the CPU tables,
// each output rounded once to its dtype. linear's part is in linear.h.
#pragma once

#include <span>

#include "base/ids.h"
#include "kernels/forward_batch.h"
#include "kernels/ops.h"
#include "kernels/paged_kv.h"
#include "kernels/reference.h"
#include "tensor/tensor.h"

namespace ibid::reference {

void rms_norm(const TensorView& out, const TensorView& x, const TensorView& weight, double eps);
void add_rms_norm(const TensorView& out, const TensorView& x, const TensorView& y, const TensorView& weight,
                  double eps);
void layer_norm(const TensorView& out, const TensorView& x, const TensorView& weight, const TensorView& bias,
                double eps);
void add_bias(const TensorView& x, const TensorView& bias);
void add(const TensorView& x, const TensorView& y);
void scale(const TensorView& x, double factor);
void scale_by_position(const TensorView& x, std::span<const int32_t> positions, double slope, int64_t length);
void silu(const TensorView& out, const TensorView& x);
void gelu(const TensorView& out, const TensorView& x);
void tanh(const TensorView& out, const TensorView& x);
void relu_squared(const TensorView& out, const TensorView& x);
void clamp(const TensorView& x, double limit);
void gelu_tanh(const TensorView& out, const TensorView& x);
void mul(const TensorView& out, const TensorView& x, const TensorView& y);
void silu_mul(const TensorView& out, const TensorView& gate, const TensorView& up);
void gelu_mul(const TensorView& out, const TensorView& gate, const TensorView& up);
void clamped_silu_mul(const TensorView& out, const TensorView& gate, const TensorView& up, double limit);
void rope_angles(const TensorView& cos_sin, const ops::Rope& rope, std::span<const int32_t> positions);
void rope(const TensorView& x, int head_len, const ops::Rope& rope, const TensorView& cos_sin);
void store_kv(const PagedKv& kv, const TensorView& k, const TensorView& v, const ForwardBatch& batch);
void store_latent(const PagedKv& kv, const TensorView& rows, const ForwardBatch& batch);
void copy_slots(const PagedKv& kv, std::span<const int32_t> from, std::span<const int32_t> to);
void keep_rows(const TensorView& q, const PagedKv& kv, const ForwardBatch& batch, float scale);
void paged_attention(const TensorView& out, const TensorView& q, const PagedKv& kv, const ForwardBatch& batch,
                     const ops::AttentionParams& params);
// Fills all of `rows`; scores in double.
void route(const ExpertRows& rows, const TensorView& logits, const Router& router);
void add_experts(const TensorView& out, const TensorView& y, const ExpertRows& rows);
void add_expert_bias(const TensorView& x, const TensorView& bias, const ExpertRows& rows);
void gate_rows(const TensorView& x, const TensorView& gate);
// States are rounded to F32 after each token.
void short_conv(const TensorView& out, const TensorView& in, const TensorView& taps, const ForwardBatch& batch,
                const LayerStates& states);
void conv_silu(const TensorView& out, const TensorView& x, const TensorView& taps, const TensorView& bias,
               const ForwardBatch& batch, const LayerStates& states);
void delta_net(const TensorView& out, const ops::DeltaInputs& in, const DeltaHeads& heads, const ForwardBatch& batch,
               const LayerStates& states);
void ssm_scan(const TensorView& out, const ops::SsmInputs& in, const SsmHeads& heads, const ForwardBatch& batch,
              const LayerStates& states);
void l2_norm(const TensorView& x, int64_t head_len, double eps, double scale);
void sigmoid_mul(const TensorView& out, const TensorView& x, const TensorView& gate);
void gather_rows(const TensorView& out, const TensorView& x, std::span<const int32_t> rows);
void soft_cap(const TensorView& logits, double cap);
void log_softmax(const TensorView& out, const TensorView& logits);

}  // namespace ibid::reference
