#include <cmath>
#include <vector>

#include "kernels/reference/elements.h"
#include "kernels/reference/reference.h"

namespace ibid::reference {
namespace {

double sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }
double softplus(double x) { return x > 20 ? x : std::log1p(std::exp(x)); }

// result(t, n, sum) of each token's and channel's sum over inputs u(t, n).
template <typename Input, typename Result>
void convolve(const TensorView& taps, const ForwardBatch& b, const LayerStates& states, Input u, Result result) {
  const int64_t N = taps.row_len(), L = taps.n_rows();
  std::vector<float> running(static_cast<size_t>(states.n_values));
  for (int32_t of = 0; of < b.n_sequences; ++of) {
    walk_states(b, of, states, running, [&](int32_t t, std::span<const float> from, std::span<float> to) {
      for (int64_t n = 0; n < N; ++n) {
        const auto before = [&](int64_t j) { return from.empty() ? 0.0f : from[static_cast<size_t>(j * N + n)]; };
        double sum = get(taps, L - 1, n) * u(t, n);
        for (int64_t j = 0; j < L - 1; ++j) sum += get(taps, j, n) * double{before(j)};
        const auto own = static_cast<float>(u(t, n));
        for (int64_t j = 0; j + 1 < L - 1; ++j) to[static_cast<size_t>(j * N + n)] = before(j + 1);
        to[static_cast<size_t>((L - 2) * N + n)] = own;
        result(t, n, sum);
      }
    });
  }
}

}  // namespace

void short_conv(const TensorView& out, const TensorView& in, const TensorView& taps, const ForwardBatch& batch,
                const LayerStates& states) {
  const int64_t N = out.row_len();
  convolve(
      taps, batch, states, [&](int32_t t, int64_t n) { return get(in, t, n) * get(in, t, 2 * N + n); },
      [&](int32_t t, int64_t n, double sum) { set(out, t, n, get(in, t, N + n) * sum); });
}

void conv_silu(const TensorView& out, const TensorView& x, const TensorView& taps, const TensorView& bias,
               const ForwardBatch& batch, const LayerStates& states) {
  convolve(
      taps, batch, states, [&](int32_t t, int64_t n) { return get(x, t, n); },
      [&](int32_t t, int64_t n, double sum) {
        if (bias.rank != 0) sum += double{bias.row_as<const float>(0)[n]};
        set(out, t, n, sum * sigmoid(sum));
      });
}

void delta_net(const TensorView& out, const ops::DeltaInputs& in, const DeltaHeads& heads, const ForwardBatch& b,
               const LayerStates& states) {
  const int64_t Dk = heads.key_len, Dv = heads.value_len, n_values = Dk * Dv;
  std::vector<float> running(static_cast<size_t>(n_values));
  for (int32_t of = 0; of < b.n_sequences; ++of) {
    for (int64_t h = 0; h < heads.n_value_heads; ++h) {
      const int64_t q_at = heads.key_head(h) * Dk, k_at = heads.k_len() + q_at, v_at = 2 * heads.k_len() + h * Dv;
      walk_states(b, of, states.part(h * n_values, n_values), running,
                  [&](int32_t t, std::span<const float> from, std::span<float> to) {
                    const double decay = std::exp(in.decay.row_as<const float>(0)[h] *
                                                  softplus(get(in.a, t, h) + in.bias.row_as<const float>(0)[h]));
                    const double beta = sigmoid(get(in.b, t, h));
                    for (int64_t c = 0; c < Dv; ++c) {
                      std::vector<double> column(static_cast<size_t>(Dk));
                      double read = 0, o = 0;
                      for (int64_t i = 0; i < Dk; ++i) {
                        column[static_cast<size_t>(i)] =
                            from.empty() ? 0 : decay * double{from[static_cast<size_t>(i * Dv + c)]};
                        read += get(in.qkv, t, k_at + i) * column[static_cast<size_t>(i)];
                      }
                      const double w = beta * (get(in.qkv, t, v_at + c) - read);
                      for (int64_t i = 0; i < Dk; ++i) {
                        column[static_cast<size_t>(i)] += get(in.qkv, t, k_at + i) * w;
                        o += get(in.qkv, t, q_at + i) * column[static_cast<size_t>(i)];
                        to[static_cast<size_t>(i * Dv + c)] = static_cast<float>(column[static_cast<size_t>(i)]);
                      }
                      set(out, t, h * Dv + c, o);
                    }
                  });
    }
  }
}

void ssm_scan(const TensorView& out, const ops::SsmInputs& in, const SsmHeads& heads, const ForwardBatch& b,
              const LayerStates& states) {
  const int64_t P = heads.head_len, N = heads.state_len, n_values = N * P;
  std::vector<float> running(static_cast<size_t>(n_values));
  for (int32_t of = 0; of < b.n_sequences; ++of) {
    for (int64_t h = 0; h < heads.n_heads; ++h) {
      const int64_t b_at = heads.x_len() + heads.group(h) * N, c_at = b_at + heads.n_groups * N;
      walk_states(b, of, states.part(h * n_values, n_values), running,
                  [&](int32_t t, std::span<const float> from, std::span<float> to) {
                    const double step = softplus(get(in.dt, t, h) + double{in.bias.row_as<const float>(0)[h]});
                    const double decay = std::exp(in.decay.row_as<const float>(0)[h] * step);
                    for (int64_t p = 0; p < P; ++p) {
                      const double x = get(in.xbc, t, h * P + p);
                      double y = in.skip.row_as<const float>(0)[h] * x;
                      for (int64_t n = 0; n < N; ++n) {
                        const auto at = static_cast<size_t>(n * P + p);
                        const double before = from.empty() ? 0 : decay * double{from[at]};
                        const double after = before + get(in.xbc, t, b_at + n) * step * x;
                        y += get(in.xbc, t, c_at + n) * after;
                        to[at] = static_cast<float>(after);
                      }
                      set(out, t, h * P + p, y);
                    }
                  });
    }
  }
}

void l2_norm(const TensorView& x, int64_t head_len, double eps, double scale) {
  for (int64_t t = 0; t < x.n_rows(); ++t) {
    for (int64_t at = 0; at < x.row_len(); at += head_len) {
      double sum = 0;
      for (int64_t i = at; i < at + head_len; ++i) sum += get(x, t, i) * get(x, t, i);
      for (int64_t i = at; i < at + head_len; ++i) set(x, t, i, get(x, t, i) * scale / std::sqrt(sum + eps));
    }
  }
}

void sigmoid_mul(const TensorView& out, const TensorView& x, const TensorView& gate) {
  for (int64_t t = 0; t < x.n_rows(); ++t) {
    for (int64_t i = 0; i < x.row_len(); ++i) set(out, t, i, get(x, t, i) * sigmoid(get(gate, t, i)));
  }
}

}  // namespace ibid::reference
