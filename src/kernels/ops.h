// Every op of a forward pass, once per device, with one declaration. An op checks shapes, chooses the device and runs;
// it never allocates and never branches on data. Activations are F32, [rows, columns], rows may be strided.
// Orders of sums are part of each contract (docs/design.md section 5): a row's bits depend on that row alone.
// Letters: T tokens, C width, F feed-forward width, H query heads, K KV heads, D head size, V vocabulary, R logit rows.
#pragma once

#include <span>

#include "base/ids.h"
#include "kernels/delta_heads.h"
#include "kernels/expert_rows.h"
#include "kernels/forward_batch.h"
#include "kernels/paged_kv.h"
#include "kernels/ssm_heads.h"
#include "kernels/state_walk.h"
#include "kernels/weight.h"
#include "tensor/stream.h"
#include "tensor/tensor.h"

namespace ibid::ops {

// out[T, C] = dequantised rows of table[V, C] (its raw bytes), times `scale` (1: exact copy).
void embed(Stream& s, const TensorView& out, const Weight& table, std::span<const TokenId> tokens, float scale = 1.0f);

// out[i, :] = x[i, :] / sqrt(mean(x[i, :]^2) + eps) * weight. The mean is summed in 16 lanes and one fixed tree.
// weight[C] is F32. out may be x.
void rms_norm(Stream& s, const TensorView& out, const TensorView& x, const TensorView& weight, float eps);

// x += y, then out = rms_norm(x). The same bits as the two ops apart.
void add_rms_norm(Stream& s, const TensorView& out, const TensorView& x, const TensorView& y, const TensorView& weight,
                  float eps);

// out[i, :] = (x[i, :] - mean) / sqrt(mean((x[i, :] - mean)^2) + eps) * weight + bias (Ba et al. 2016). Both means are
// summed in 16 lanes and one fixed tree, the second over the deviations. weight[C] and bias[C] are F32. out may be x.
void layer_norm(Stream& s, const TensorView& out, const TensorView& x, const TensorView& weight, const TensorView& bias,
                float eps);

// out[j][T, N_j] = x[T, K] * W_j[N_j, K]^T for each j. The order of sums of each weight family stands in
// kernels/linear.h; it is the same for one row, few and many, for any thread count and any ISA.
inline constexpr size_t kMaxLinearWeights = 8;  // of one call
void linear(Stream& s, std::span<const TensorView> out, const TensorView& x, std::span<const Weight* const> weights);
size_t linear_workspace_bytes(int64_t n_rows, int64_t n_inputs);

// Experts (kernels/expert_rows.h). Fills `rows` from the router's logits[T, E], which become the scores.
void route(Stream& s, const ExpertRows& rows, const TensorView& logits, const Router& router);
// Where a row of an expert reads: x[T, K] at its token, or x[T k, K] at the row.
enum class ExpertInput : uint8_t { kOfToken, kOfRow };
// out[j][T k, N_j]: each row of expert e is its row of x times experts[j][e]^T, all [N_j, K]. A row has the bits that
// ops::linear gives it, however many rows its expert has; experts without rows are not read.
inline constexpr size_t kMaxExpertWeights = 2;  // of one call
void linear_experts(Stream& s, std::span<const TensorView> out, const TensorView& x, ExpertInput input,
                    const ExpertRows& rows, std::span<const std::span<const Weight>> experts);
size_t linear_experts_workspace_bytes(int64_t n_rows, int64_t n_inputs);
// out[T, C] = of each token the sum of its experts' rows of y[T k, C] by their weights, in the order of
// kernels/expert_groups.h.
void add_experts(Stream& s, const TensorView& out, const TensorView& y, const ExpertRows& rows);
// x[i, :] += bias[e, :] for each row i of x[T k, N] and its expert e; bias[E, N].
void add_expert_bias(Stream& s, const TensorView& x, const TensorView& bias, const ExpertRows& rows);
// x[i, :] *= sigmoid(gate[i]) for gate[T, 1].
void gate_rows(Stream& s, const TensorView& x, const TensorView& gate);

// Products of heads, each by a weight of its own, all [N, K]. Rows of x and out are H heads one after the other, at
// least K and N long: the first N values of a head of out[T, H No] become the first K of the head of x[T, H Ni] times
// weights[h]^T, with the bits that ops::linear gives them; what is after them stays. H is at most kMaxLinearHeads.
inline constexpr size_t kMaxLinearHeads = kMaxExperts;
void linear_heads(Stream& s, const TensorView& out, const TensorView& x, std::span<const Weight> weights);
size_t linear_heads_workspace_bytes(int64_t n_rows, int64_t n_heads, int64_t n_inputs);
// Of each of H heads values [to, to + len) of out[T, H No] become values [from, from + len) of x[T, H Ni].
struct HeadColumns {
  int64_t to = 0, from = 0, len = 0;
};
void copy_heads(Stream& s, const TensorView& out, const TensorView& x, int64_t n_heads, const HeadColumns& columns);

// x[T, N] += bias[N].
void add_bias(Stream& s, const TensorView& x, const TensorView& bias);
// x += y; x *= scale.
void add(Stream& s, const TensorView& x, const TensorView& y);
void scale(Stream& s, const TensorView& x, float factor);
// x[t, :] *= 1 + slope ln(1 + floor(positions[t] / length)), the factor in double precision and rounded once.
void scale_by_position(Stream& s, const TensorView& x, std::span<const int32_t> positions, float slope, int64_t length);

// out = silu(gate) * up and gelu_tanh(gate) * up, element by element. out may be gate or up.
void silu_mul(Stream& s, const TensorView& out, const TensorView& gate, const TensorView& up);
void gelu_mul(Stream& s, const TensorView& out, const TensorView& gate, const TensorView& up);
// out = (u + 1) * g * sigmoid(1.702 g) with g = min(gate, limit) and u = max(min(up, limit), -limit), element by
// element (gpt-oss). out may be gate or up; limit > 0.
void clamped_silu_mul(Stream& s, const TensorView& out, const TensorView& gate, const TensorView& up, float limit);

// out = gelu(x) = x Phi(x), gelu_tanh(x) and tanh(x), element by element (Hendrycks and Gimpel 2016). out may be x.
void gelu(Stream& s, const TensorView& out, const TensorView& x);
void gelu_tanh(Stream& s, const TensorView& out, const TensorView& x);
void tanh(Stream& s, const TensorView& out, const TensorView& x);
// out = max(x, 0)^2, element by element (So et al. 2021, Primer). out may be x.
void relu_squared(Stream& s, const TensorView& out, const TensorView& x);
// x = max(-limit, min(x, limit)), element by element; NaN stays. limit > 0.
void clamp(Stream& s, const TensorView& x, float limit);

// How pairs of a head are rotated. Pair i turns by position * frequency[i]; cos and sin are multiplied by `magnitude`
// (yarn, longrope). 2 * n_pairs values of a head turn, from its value `first` on.
struct Rope {
  bool interleaved = false;  // pairs (2i, 2i + 1) instead of (i, i + n_pairs)
  int n_pairs = 0;
  float magnitude = 1.0f;
  const double* frequency = nullptr;  // [n_pairs], owned by the model
  int first = 0;
  // [n_pairs], owned by the model: by which of a token's three positions a pair turns (M-RoPE, Wang et al. 2024,
  // Qwen2-VL, section 2.1); null: all by the first.
  const uint8_t* axes = nullptr;
};
// cos_sin[T, 2 * n_pairs]: cosines then sines of each token, computed once per step in double precision, rounded once.
// positions[T], or [T, kRopeAxes]: one for each axis.
inline constexpr int64_t kRopeAxes = 3;
void rope_angles(Stream& s, const TensorView& cos_sin, const Rope& rope, std::span<const int32_t> positions);
// Rotates x[T, n_heads * D] in place.
void rope(Stream& s, const TensorView& x, int head_len, const Rope& rope, const TensorView& cos_sin);

// Writes k[T, K * Dk] and v[T, K * Dv] to the slots of the batch, rounded to the KV dtype (nearest even).
void store_kv(Stream& s, const PagedKv& kv, const TensorView& k, const TensorView& v, const ForwardBatch& batch);
// The same of a latent cache: rows[T, Dk], which are keys and begin with their values.
void store_latent(Stream& s, const PagedKv& kv, const TensorView& rows, const ForwardBatch& batch);

// Copies the keys and values of slot from[i] to slot to[i], all heads, for i = 0, 1, ... one after another: a later
// copy reads what an earlier one wrote. So moves that only go down, in ascending order of `to`, are right however they
// overlap (accepted drafts to their positions' slots). The bytes as they are, for every KV dtype. A cache that
// several layers read is moved once, not once a layer.
void copy_slots(Stream& s, const PagedKv& kv, std::span<const int32_t> from, std::span<const int32_t> to);

// Copies a whole block of a layer's cache.
void copy_block(Stream& s, const PagedKv& kv, BlockId from, BlockId to);

// Copies what sequences keep of a layer's keys and values (ForwardBatch::kept, KvKind::kHeads) to their kept blocks,
// the bytes as they are. Which rows a KV head keeps: kernels/kept_rows.h, of q[T, H * Dk], the queries of
// paged_attention; `scale` is its scale. Rank 0 where no rows are chosen by scores.
void keep_rows(Stream& s, const TensorView& q, const PagedKv& kv, const ForwardBatch& batch, float scale);
size_t keep_rows_workspace_bytes(const Stream& s, int32_t group, int32_t key_len, int32_t max_positions);

struct AttentionParams {
  float scale = 1.0f;     // of the scores
  float soft_cap = 0.0f;  // 0: none; else scores = cap * tanh(scores / cap)
  int32_t window = 0;     // 0: all; else a query at position p sees keys at positions > p - window
  // null, or [H]: a logit of each query head that takes part in the sum of its softmax and has no value (gpt-oss)
  const float* sinks = nullptr;
  // null, or [H]: a score changes by its query head's slope times (position of the key - position of the query), after
  // the cap (ALiBi, Press et al. 2022). In a view both are places (kernels/forward_batch.h).
  const float* slopes = nullptr;
};
// out[T, H * Dv] = attention of q[T, H * Dk] over the cache, of either kind. Tiles of 64 positions anchored at absolute
// position 0, with an online softmax, in pieces of a fixed number of tiles that merge as an anchored binary tree
// (docs/design.md section 5, law 1). A token with a path has the bits that it would have if the path were a plain
// sequence.
void paged_attention(Stream& s, const TensorView& out, const TensorView& q, const PagedKv& kv,
                     const ForwardBatch& batch, const AttentionParams& params);
size_t paged_attention_workspace_bytes(int32_t n_tokens, int32_t n_heads, int32_t value_len, int32_t max_positions);

// Recurrent layers. A token's row and the state after it follow from the tokens that it goes on from alone
// (kernels/state_walk.h): each sum below has one order, whatever part of it lies in the state.
//
// Convolutions over time, each channel by itself. taps[L, N]: weights, that of the oldest token first, the token's own
// last; L >= 2. What lies before a sequence's begin is 0. A sum is a chain of multiply-adds, the oldest first. The
// state is [L - 1, N]: the last values that enter sums, the oldest first.
// in[T, 3 N] is b, c and x side by side: out[T, N] = c * conv(b * x).
void short_conv(Stream& s, const TensorView& out, const TensorView& in, const TensorView& taps,
                const ForwardBatch& batch, const LayerStates& states);
// out[T, N] = silu(bias + conv(x)), the chain's first term; bias[N], or of rank 0: none. out may be x.
void conv_silu(Stream& s, const TensorView& out, const TensorView& x, const TensorView& taps, const TensorView& bias,
               const ForwardBatch& batch, const LayerStates& states);
size_t conv_workspace_bytes(const Stream& s, int64_t n_taps, int64_t n_channels);  // of either

// A gated delta net (kernels/delta_heads.h), token after token. Of value head h with key head j = key_head(h), whose
// state is S[Dk, Dv]: S *= exp(decay[h] * softplus(a[t, h] + bias[h])); w = sigmoid(b[t, h]) * (v - S^T k);
// S += k w^T; out = S^T q, the sums over Dk ascending. qkv[T, 2 Hk Dk + Hv Dv] is q, k and v side by side; a and b are
// [T, Hv], decay and bias [Hv]; out[T, Hv Dv]. The state is [Hv, Dk, Dv].
struct DeltaInputs {
  TensorView qkv, a, b, decay, bias;
};
void delta_net(Stream& s, const TensorView& out, const DeltaInputs& in, const DeltaHeads& heads,
               const ForwardBatch& batch, const LayerStates& states);
size_t delta_net_workspace_bytes(const Stream& s, const DeltaHeads& heads);

// A selective state space (kernels/ssm_heads.h), token after token. Of head h, whose group has B and C and whose state
// is S[N, P]: step = softplus(dt[t, h] + bias[h]); S *= exp(decay[h] * step); S += B (step * x)^T; out = S^T C +
// skip[h] * x, the sums over N ascending. xbc[T, H P + 2 G N] is x, B and C side by side; dt is [T, H], decay, bias and
// skip [H]; out[T, H P]. The state is [H, N, P].
struct SsmInputs {
  TensorView xbc, dt, decay, bias, skip;
};
void ssm_scan(Stream& s, const TensorView& out, const SsmInputs& in, const SsmHeads& heads, const ForwardBatch& batch,
              const LayerStates& states);
size_t ssm_scan_workspace_bytes(const Stream& s, const SsmHeads& heads);

// x[t, h] *= scale / sqrt(sum(x[t, h]^2) + eps) for each head of x[T, n_heads * head_len].
void l2_norm(Stream& s, const TensorView& x, int64_t head_len, float eps, float scale);
// out = x * sigmoid(gate), element by element. out may be either.
void sigmoid_mul(Stream& s, const TensorView& out, const TensorView& x, const TensorView& gate);
// Parts the columns of x[T, G (n_0 + n_1 + ...)], which are G groups of one part for each output, one after another:
// out[j][T, G n_j] has part j of each group.
inline constexpr size_t kMaxGroupParts = 4;
void part_groups(Stream& s, std::span<const TensorView> out, const TensorView& x, int64_t n_groups);

// Rows from outside of the step (ForwardBatch::inputs): x[t, :] = rows[t][from, from + C), or += those, for each t
// whose row is not null.
void put_rows(Stream& s, const TensorView& x, std::span<const float* const> rows, int64_t from);
void add_rows(Stream& s, const TensorView& x, std::span<const float* const> rows, int64_t from);

// out[R, C] = x[rows[i], :].
void gather_rows(Stream& s, const TensorView& out, const TensorView& x, std::span<const int32_t> rows);
// out[out_rows[i], :] = x[rows[i], :]. As many out_rows as rows, no two alike, and none of them is a row that is read.
void copy_rows(Stream& s, const TensorView& out, std::span<const int32_t> out_rows, const TensorView& x,
               std::span<const int32_t> rows);
// logits = cap * tanh(logits / cap).
void soft_cap(Stream& s, const TensorView& logits, float cap);

// out[R, V] = logits - log(sum(exp(logits))), each row by 16 lanes and one fixed tree. out may be logits.
void log_softmax(Stream& s, const TensorView& out, const TensorView& logits);

}  // namespace ibid::ops
