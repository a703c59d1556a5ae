// Kernels of recurrent layers: one token's step of a convolution over time, of a delta net's head and of a state
// space's, and what goes with them. Plain pointers; any n >= 0, any alignment. All are straight sums and products of a
// lane by itself but for the sum of l2_norm, which is 16 ascending lane sums, then the tree of simd.h.
#pragma once

#include <cstdint>

namespace ibid::cpu {

// One token of a convolution over time, of n channels. `stride`: floats from one row of taps, from and to to the next.
struct ConvStep {
  float* out;
  const float* in_gate;   // null: u = x; else u = in_gate * x
  const float* out_gate;  // null: out = silu(sum); else out = out_gate * sum
  const float* x;
  const float* bias;  // null: none
  const float* taps;  // [n_taps], the oldest first
  const float* from;  // [n_taps - 1] values of u before, the oldest first; null: zeros
  float* to;          // [n_taps - 1] the same after the token; may be from
  int64_t stride;
  int64_t n;
  int n_taps;  // 2 or more
};

// One token of a head of a delta net. S is [key_len, value_len].
struct DeltaStep {
  float* out;         // [value_len]
  const float* q;     // [key_len]
  const float* k;     // [key_len]
  const float* v;     // [value_len]
  float decay, beta;  // of the state, and of what is written
  const float* from;  // S before; null: zeros
  float* to;          // S after; may be from
  int64_t key_len, value_len;
};

// One token of a head of a state space. S is [state_len, head_len]. out is not x.
struct SsmStep {
  float* out;         // [head_len]
  const float* x;     // [head_len]
  const float* b;     // [state_len]
  const float* c;     // [state_len]
  float step, decay;  // of what is written, and of the state
  float skip;
  const float* from;  // S before; null: zeros
  float* to;          // S after; may be from
  int64_t head_len, state_len;
};

struct RecurrentTable {
  // sum = fma(taps[j], u of n_taps - 1 - j tokens before, sum) for j ascending, from the bias, or 0.
  void (*conv)(const ConvStep& step);
  // Of each column c: r = fma(k[i], decay * S[i, c], r) for i ascending; w = beta * (v[c] - r); then for i ascending
  // S[i, c] = fma(k[i], w, decay * S[i, c]) and out[c] = fma(q[i], S[i, c], out[c]).
  void (*delta)(const DeltaStep& step);
  // Of each column p, with u = step * x[p]: for n ascending S[n, p] = fma(b[n], u, decay * S[n, p]) and
  // y = fma(c[n], S[n, p], y), from 0; then out[p] = fma(skip, x[p], y).
  void (*ssm)(const SsmStep& step);
  // x *= scale / sqrt(sum(fma(x, x, .)) + eps)
  void (*l2_norm)(float* x, int64_t n, float eps, float scale);
  // out = x / (1 + exp(-gate)). out may be x or gate.
  void (*sigmoid_mul)(float* out, const float* x, const float* gate, int64_t n);
};

}  // namespace ibid::cpu
