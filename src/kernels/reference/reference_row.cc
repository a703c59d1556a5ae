#include <algorithm>
#include <atomic>
#include <cmath>

#include "kernels/reference/elements.h"
#include "kernels/reference/reference.h"

namespace ibid::reference {
namespace {

std::atomic<bool> g_selected = false;

template <typename F>
void each(const TensorView& out, F&& value) {
  for (int64_t i = 0; i < out.n_rows(); ++i) {
    for (int64_t j = 0; j < out.row_len(); ++j) set(out, i, j, value(i, j));
  }
}

}  // namespace

void select(bool on) { g_selected = on; }
bool selected() { return g_selected; }

void rms_norm(const TensorView& out, const TensorView& x, const TensorView& weight, double eps) {
  const int64_t n = x.row_len();
  for (int64_t i = 0; i < x.n_rows(); ++i) {
    double sum = 0.0;
    for (int64_t j = 0; j < n; ++j) sum += get(x, i, j) * get(x, i, j);
    const double root = std::sqrt(sum / static_cast<double>(n) + eps);
    for (int64_t j = 0; j < n; ++j) set(out, i, j, get(x, i, j) / root * get(weight, 0, j));
  }
}

void add_rms_norm(const TensorView& out, const TensorView& x, const TensorView& y, const TensorView& weight,
                  double eps) {
  add(x, y);
  rms_norm(out, x, weight, eps);
}

void layer_norm(const TensorView& out, const TensorView& x, const TensorView& weight, const TensorView& bias,
                double eps) {
  const int64_t n = x.row_len();
  for (int64_t i = 0; i < x.n_rows(); ++i) {
    double sum = 0.0, squares = 0.0;
    for (int64_t j = 0; j < n; ++j) sum += get(x, i, j);
    const double mean = sum / static_cast<double>(n);
    for (int64_t j = 0; j < n; ++j) squares += (get(x, i, j) - mean) * (get(x, i, j) - mean);
    const double root = std::sqrt(squares / static_cast<double>(n) + eps);
    for (int64_t j = 0; j < n; ++j) set(out, i, j, (get(x, i, j) - mean) / root * get(weight, 0, j) + get(bias, 0, j));
  }
}

void add_bias(const TensorView& x, const TensorView& bias) {
  each(x, [&](int64_t i, int64_t j) { return get(x, i, j) + get(bias, 0, j); });
}
void add(const TensorView& x, const TensorView& y) {
  each(x, [&](int64_t i, int64_t j) { return get(x, i, j) + get(y, i, j); });
}
void scale(const TensorView& x, double factor) {
  each(x, [&](int64_t i, int64_t j) { return get(x, i, j) * factor; });
}
void scale_by_position(const TensorView& x, std::span<const int32_t> positions, double slope, int64_t length) {
  each(x, [&](int64_t i, int64_t j) {
    const auto n = static_cast<double>(positions[static_cast<size_t>(i)] / length);
    return get(x, i, j) * (1.0 + slope * std::log1p(n));
  });
}
void mul(const TensorView& out, const TensorView& x, const TensorView& y) {
  each(out, [&](int64_t i, int64_t j) { return get(x, i, j) * get(y, i, j); });
}
void silu(const TensorView& out, const TensorView& x) {
  each(out, [&](int64_t i, int64_t j) { return get(x, i, j) / (1.0 + std::exp(-get(x, i, j))); });
}
void gelu(const TensorView& out, const TensorView& x) {
  each(out, [&](int64_t i, int64_t j) { return 0.5 * get(x, i, j) * std::erfc(-get(x, i, j) / M_SQRT2); });
}
void tanh(const TensorView& out, const TensorView& x) {
  each(out, [&](int64_t i, int64_t j) { return std::tanh(get(x, i, j)); });
}
void relu_squared(const TensorView& out, const TensorView& x) {
  each(out, [&](int64_t i, int64_t j) { return get(x, i, j) < 0.0 ? 0.0 : get(x, i, j) * get(x, i, j); });
}
void clamp(const TensorView& x, double limit) {
  each(x, [&](int64_t i, int64_t j) { return std::clamp(get(x, i, j), -limit, limit); });
}
void gelu_tanh(const TensorView& out, const TensorView& x) {
  each(out, [&](int64_t i, int64_t j) {
    const double v = get(x, i, j);
    return 0.5 * v * (1.0 + std::tanh(std::sqrt(2.0 / M_PI) * (v + 0.044715 * v * v * v)));
  });
}
void silu_mul(const TensorView& out, const TensorView& gate, const TensorView& up) {
  Between activated(gate);
  silu(activated.view, gate);
  mul(out, activated.view, up);
}
void gelu_mul(const TensorView& out, const TensorView& gate, const TensorView& up) {
  Between activated(gate);
  gelu_tanh(activated.view, gate);
  mul(out, activated.view, up);
}
void clamped_silu_mul(const TensorView& out, const TensorView& gate, const TensorView& up, double limit) {
  each(out, [&](int64_t i, int64_t j) {
    const double g = std::min(get(gate, i, j), limit), u = std::clamp(get(up, i, j), -limit, limit);
    return (u + 1.0) * g / (1.0 + std::exp(-1.702 * g));
  });
}

void rope_angles(const TensorView& cos_sin, const ops::Rope& rope, std::span<const int32_t> positions) {
  const bool has_axes = static_cast<int64_t>(positions.size()) > cos_sin.n_rows();
  const int64_t stride = has_axes ? ops::kRopeAxes : 1;
  for (int64_t t = 0; t < cos_sin.n_rows(); ++t) {
    for (int i = 0; i < rope.n_pairs; ++i) {
      const int64_t axis = has_axes && rope.axes != nullptr ? rope.axes[i] : 0;
      const double angle = positions[static_cast<size_t>(t * stride + axis)] * rope.frequency[i];
      set(cos_sin, t, i, std::cos(angle) * rope.magnitude);
      set(cos_sin, t, rope.n_pairs + i, std::sin(angle) * rope.magnitude);
    }
  }
}

void rope(const TensorView& x, int head_len, const ops::Rope& rope, const TensorView& cos_sin) {
  for (int64_t t = 0; t < x.n_rows(); ++t) {
    for (int64_t head = rope.first; head < x.row_len(); head += head_len) {
      for (int i = 0; i < rope.n_pairs; ++i) {
        const int64_t a = head + (rope.interleaved ? 2 * i : i);
        const int64_t b = head + (rope.interleaved ? 2 * i + 1 : i + rope.n_pairs);
        const double c = get(cos_sin, t, i);
        const double s = get(cos_sin, t, rope.n_pairs + i);
        const double xa = get(x, t, a);
        const double xb = get(x, t, b);
        set(x, t, a, xa * c - xb * s);
        set(x, t, b, xb * c + xa * s);
      }
    }
  }
}

void gather_rows(const TensorView& out, const TensorView& x, std::span<const int32_t> rows) {
  each(out, [&](int64_t i, int64_t j) { return get(x, rows[static_cast<size_t>(i)], j); });
}

void soft_cap(const TensorView& logits, double cap) {
  each(logits, [&](int64_t i, int64_t j) { return cap * std::tanh(get(logits, i, j) / cap); });
}

void log_softmax(const TensorView& out, const TensorView& logits) {
  const int64_t n = logits.row_len();
  for (int64_t i = 0; i < logits.n_rows(); ++i) {
    double most = -INFINITY;
    for (int64_t j = 0; j < n; ++j) most = std::max(most, get(logits, i, j));
    double sum = 0.0;
    for (int64_t j = 0; j < n; ++j) sum += std::exp(get(logits, i, j) - most);
    const double log_sum = most + std::log(sum);
    for (int64_t j = 0; j < n; ++j) set(out, i, j, get(logits, i, j) - log_sum);
  }
}

}  // namespace ibid::reference
