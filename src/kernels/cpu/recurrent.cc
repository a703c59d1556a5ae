// Recurrent layers on the CPU: sequences, and parts of a state that go on by themselves, over the team; each is walked
// token after token.
#include <algorithm>
#include <cstring>

#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/for_rows.h"
#include "kernels/cpu/recurrent_table.h"
#include "kernels/cpu/table.h"
#include "kernels/math.h"

namespace ibid::cpu {
namespace {

constexpr int64_t kChannels = 256;  // of a convolution that one thread takes at once; a multiple of 16
constexpr int kSigmoidWeight = 8;   // an element's cost against an addition's

// A state that is not kept, for each thread; 64-byte aligned.
int64_t running_len(int64_t n_values) { return (n_values + 15) / 16 * 16; }
size_t running_bytes(const Stream& s, int64_t n_values) {
  return static_cast<size_t>(s.team().n_threads() * running_len(n_values)) * sizeof(float);
}
std::span<float> running_of(std::byte* workspace, int thread, int64_t n_values) {
  return {reinterpret_cast<float*>(workspace) + thread * running_len(n_values), static_cast<size_t>(n_values)};
}

// body(sequence, part, thread) for each of n_parts of each sequence; `cost` of all, in additions.
template <typename Body>
void for_parts(Stream& s, int64_t n_sequences, int64_t n_parts, int64_t cost, Body&& body) {
  const auto task = [&](int64_t i, int thread) { body(static_cast<int32_t>(i / n_parts), i % n_parts, thread); };
  const int64_t n_tasks = n_sequences * n_parts;
  if (cost > kSerialElements && s.team().n_threads() > 1) return s.team().parallel_for(n_tasks, task);
  for (int64_t i = 0; i < n_tasks; ++i) task(i, 0);
}

// What differs between convolutions, columns of a row of `in` apart.
struct ConvRows {
  int64_t in_gate = -1, out_gate = -1;  // -1: none
  int64_t x = 0;
};

void convolve(Stream& s, const TensorView& out, const TensorView& in, const ConvRows& rows, const TensorView& taps,
              const float* bias, const ForwardBatch& b, const LayerStates& states) {
  const int64_t N = out.row_len(), L = taps.n_rows(), n_parts = (N + kChannels - 1) / kChannels;
  const auto conv = table().recurrent->conv;
  std::byte* workspace = s.workspace(conv_workspace_bytes(s, L, N));
  for_parts(s, b.n_sequences, n_parts, b.n_tokens * N * (L + kSigmoidWeight),
            [&](int32_t of, int64_t part, int thread) {
              const int64_t first = part * kChannels;
              walk_states(b, of, states, running_of(workspace, thread, states.n_values),
                          [&](int32_t t, std::span<const float> from, std::span<float> to) {
                            const float* row = in.row_as<const float>(t) + first;
                            conv({.out = out.row_as<float>(t) + first,
                                  .in_gate = rows.in_gate < 0 ? nullptr : row + rows.in_gate,
                                  .out_gate = rows.out_gate < 0 ? nullptr : row + rows.out_gate,
                                  .x = row + rows.x,
                                  .bias = bias == nullptr ? nullptr : bias + first,
                                  .taps = taps.row_as<const float>(0) + first,
                                  .from = from.empty() ? nullptr : from.data() + first,
                                  .to = to.data() + first,
                                  .stride = N,
                                  .n = std::min(kChannels, N - first),
                                  .n_taps = static_cast<int>(L)});
                          });
            });
}

float softplus(float x) { return x > 20.0f ? x : math::log1p(math::exp(x)); }
float sigmoid(float x) { return 1.0f / (1.0f + math::exp(-x)); }

}  // namespace

void short_conv(Stream& s, const TensorView& out, const TensorView& in, const TensorView& taps,
                const ForwardBatch& batch, const LayerStates& states) {
  const int64_t N = out.row_len();
  convolve(s, out, in, {.in_gate = 0, .out_gate = N, .x = 2 * N}, taps, nullptr, batch, states);
}

void conv_silu(Stream& s, const TensorView& out, const TensorView& x, const TensorView& taps, const TensorView& bias,
               const ForwardBatch& batch, const LayerStates& states) {
  convolve(s, out, x, {}, taps, bias.rank == 0 ? nullptr : bias.row_as<const float>(0), batch, states);
}

size_t conv_workspace_bytes(const Stream& s, int64_t n_taps, int64_t n_channels) {
  return running_bytes(s, (n_taps - 1) * n_channels);
}

void delta_net(Stream& s, const TensorView& out, const ops::DeltaInputs& in, const DeltaHeads& heads,
               const ForwardBatch& b, const LayerStates& states) {
  const int64_t Dk = heads.key_len, Dv = heads.value_len, n_values = Dk * Dv;
  const auto delta = table().recurrent->delta;
  std::byte* workspace = s.workspace(delta_net_workspace_bytes(s, heads));
  const float* decay = in.decay.row_as<const float>(0);
  const float* bias = in.bias.row_as<const float>(0);
  const int64_t cost = b.n_tokens * heads.n_value_heads * n_values * 4;
  for_parts(s, b.n_sequences, heads.n_value_heads, cost, [&](int32_t of, int64_t h, int thread) {
    const int64_t q_at = heads.key_head(h) * Dk, k_at = heads.k_len() + q_at, v_at = 2 * heads.k_len() + h * Dv;
    walk_states(b, of, states.part(h * n_values, n_values), running_of(workspace, thread, n_values),
                [&](int32_t t, std::span<const float> from, std::span<float> to) {
                  const float* qkv = in.qkv.row_as<const float>(t);
                  const float log_decay = decay[h] * softplus(in.a.row_as<const float>(t)[h] + bias[h]);
                  delta({.out = out.row_as<float>(t) + h * Dv,
                         .q = qkv + q_at,
                         .k = qkv + k_at,
                         .v = qkv + v_at,
                         .decay = math::exp(log_decay),
                         .beta = sigmoid(in.b.row_as<const float>(t)[h]),
                         .from = from.empty() ? nullptr : from.data(),
                         .to = to.data(),
                         .key_len = Dk,
                         .value_len = Dv});
                });
  });
}

size_t delta_net_workspace_bytes(const Stream& s, const DeltaHeads& heads) {
  return running_bytes(s, heads.key_len * heads.value_len);
}

void ssm_scan(Stream& s, const TensorView& out, const ops::SsmInputs& in, const SsmHeads& heads, const ForwardBatch& b,
              const LayerStates& states) {
  const int64_t P = heads.head_len, N = heads.state_len, n_values = N * P;
  const auto ssm = table().recurrent->ssm;
  std::byte* workspace = s.workspace(ssm_scan_workspace_bytes(s, heads));
  const float* decay = in.decay.row_as<const float>(0);
  const float* bias = in.bias.row_as<const float>(0);
  const float* skip = in.skip.row_as<const float>(0);
  const int64_t cost = b.n_tokens * heads.n_values() * 3;
  for_parts(s, b.n_sequences, heads.n_heads, cost, [&](int32_t of, int64_t h, int thread) {
    const int64_t b_at = heads.x_len() + heads.group(h) * N, c_at = b_at + heads.n_groups * N;
    walk_states(b, of, states.part(h * n_values, n_values), running_of(workspace, thread, n_values),
                [&](int32_t t, std::span<const float> from, std::span<float> to) {
                  const float* xbc = in.xbc.row_as<const float>(t);
                  const float step = softplus(in.dt.row_as<const float>(t)[h] + bias[h]);
                  ssm({.out = out.row_as<float>(t) + h * P,
                       .x = xbc + h * P,
                       .b = xbc + b_at,
                       .c = xbc + c_at,
                       .step = step,
                       .decay = math::exp(decay[h] * step),
                       .skip = skip[h],
                       .from = from.empty() ? nullptr : from.data(),
                       .to = to.data(),
                       .head_len = P,
                       .state_len = N});
                });
  });
}

size_t ssm_scan_workspace_bytes(const Stream& s, const SsmHeads& heads) {
  return running_bytes(s, heads.head_len * heads.state_len);
}

void l2_norm(Stream& s, const TensorView& x, int64_t head_len, float eps, float scale) {
  const auto norm = table().recurrent->l2_norm;
  for_rows(s, x.n_rows(), x.row_len(), 2, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      for (int64_t at = 0; at < x.row_len(); at += head_len) norm(x.row_as<float>(t) + at, head_len, eps, scale);
    }
  });
}

void sigmoid_mul(Stream& s, const TensorView& out, const TensorView& x, const TensorView& gate) {
  const auto multiply = table().recurrent->sigmoid_mul;
  for_rows(s, x.n_rows(), x.row_len(), kSigmoidWeight, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t)
      multiply(out.row_as<float>(t), x.row_as<const float>(t), gate.row_as<const float>(t), x.row_len());
  });
}

void part_groups(Stream& s, std::span<const TensorView> out, const TensorView& x, int64_t n_groups) {
  for_rows(s, x.n_rows(), x.row_len(), 1, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      const float* from = x.row_as<const float>(t);
      for (int64_t g = 0; g < n_groups; ++g) {
        for (const TensorView& part : out) {
          const int64_t len = part.row_len() / n_groups;
          std::memcpy(part.row_as<float>(t) + g * len, from, static_cast<size_t>(len) * sizeof(float));
          from += len;
        }
      }
    }
  });
}

}  // namespace ibid::cpu
