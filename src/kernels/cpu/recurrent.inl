// The body of every instruction set's recurrent.cc.
#include "kernels/cpu/recurrent_table.h"
#include "kernels/cpu/simd.h"

#include "kernels/cpu/math.inl"

#define IBID_LAMBDA __attribute__((always_inline))

namespace ibid::cpu::IBID_ISA {
namespace {

// body(i, n): lanes of [i, i + n), n = 16 but for the last.
template <typename Body>
IBID_INLINE void over(int64_t n, Body body) {
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) body(i, 16);
  if (i < n) body(i, static_cast<int>(n - i));
}
IBID_INLINE f32x16 get(const float* p, int n) { return n == 16 ? load(p) : load_n(p, n); }
IBID_INLINE void put(float* p, f32x16 x, int n) {
  if (n == 16) {
    store(p, x);
  } else {
    store_n(p, x, n);
  }
}

void conv(const ConvStep& s) {
  const int n_before = s.n_taps - 1;
  over(s.n, [&](int64_t i, int len) IBID_LAMBDA {
    f32x16 u = get(s.x + i, len);
    if (s.in_gate != nullptr) u = mul(get(s.in_gate + i, len), u);
    f32x16 sum = s.bias != nullptr ? get(s.bias + i, len) : zero();
    for (int j = 0; j < n_before; ++j) {
      const f32x16 before = s.from != nullptr ? get(s.from + j * s.stride + i, len) : zero();
      sum = fma(get(s.taps + j * s.stride + i, len), before, sum);
      if (j > 0) put(s.to + (j - 1) * s.stride + i, before, len);  // from's row j - 1 was read before
    }
    put(s.to + (n_before - 1) * s.stride + i, u, len);
    sum = fma(get(s.taps + n_before * s.stride + i, len), u, sum);
    put(s.out + i, s.out_gate != nullptr ? mul(get(s.out_gate + i, len), sum) : silu(sum), len);
  });
}

// Columns [c, c + 16 VECTORS), of the last one len.
template <int VECTORS>
IBID_INLINE void delta_columns(const DeltaStep& s, int64_t c, int len) {
  const f32x16 decay = broadcast(s.decay);
  const auto part = [&](int v) IBID_LAMBDA { return v + 1 < VECTORS ? 16 : len; };
  f32x16 w[VECTORS], out[VECTORS];
  for (int v = 0; v < VECTORS; ++v) w[v] = out[v] = zero();
  for (int64_t i = 0; s.from != nullptr && i < s.key_len; ++i) {
    const f32x16 k = broadcast(s.k[i]);
    for (int v = 0; v < VECTORS; ++v)
      w[v] = fma(k, mul(decay, get(s.from + i * s.value_len + c + 16 * v, part(v))), w[v]);
  }
  for (int v = 0; v < VECTORS; ++v) w[v] = mul(broadcast(s.beta), sub(get(s.v + c + 16 * v, part(v)), w[v]));
  for (int64_t i = 0; i < s.key_len; ++i) {
    const f32x16 k = broadcast(s.k[i]), q = broadcast(s.q[i]);
    for (int v = 0; v < VECTORS; ++v) {
      const int64_t at = i * s.value_len + c + 16 * v;
      const f32x16 before = s.from != nullptr ? mul(decay, get(s.from + at, part(v))) : zero();
      const f32x16 after = fma(k, w[v], before);
      put(s.to + at, after, part(v));
      out[v] = fma(q, after, out[v]);
    }
  }
  for (int v = 0; v < VECTORS; ++v) put(s.out + c + 16 * v, out[v], part(v));
}

void delta(const DeltaStep& s) {
  int64_t c = 0;
  for (; c + 64 <= s.value_len; c += 64) delta_columns<4>(s, c, 16);
  for (; c < s.value_len; c += 16) {
    delta_columns<1>(s, c, s.value_len - c < 16 ? static_cast<int>(s.value_len - c) : 16);
  }
}

// Columns [p, p + 16 VECTORS), of the last one len.
template <int VECTORS>
IBID_INLINE void ssm_columns(const SsmStep& s, int64_t p, int len) {
  const f32x16 decay = broadcast(s.decay);
  const auto part = [&](int v) IBID_LAMBDA { return v + 1 < VECTORS ? 16 : len; };
  f32x16 u[VECTORS], y[VECTORS];
  for (int v = 0; v < VECTORS; ++v) {
    u[v] = mul(broadcast(s.step), get(s.x + p + 16 * v, part(v)));
    y[v] = zero();
  }
  for (int64_t n = 0; n < s.state_len; ++n) {
    const f32x16 b = broadcast(s.b[n]), c = broadcast(s.c[n]);
    for (int v = 0; v < VECTORS; ++v) {
      const int64_t at = n * s.head_len + p + 16 * v;
      const f32x16 before = s.from != nullptr ? mul(decay, get(s.from + at, part(v))) : zero();
      const f32x16 after = fma(b, u[v], before);
      put(s.to + at, after, part(v));
      y[v] = fma(c, after, y[v]);
    }
  }
  for (int v = 0; v < VECTORS; ++v)
    put(s.out + p + 16 * v, fma(broadcast(s.skip), get(s.x + p + 16 * v, part(v)), y[v]), part(v));
}

void ssm(const SsmStep& s) {
  int64_t p = 0;
  for (; p + 64 <= s.head_len; p += 64) ssm_columns<4>(s, p, 16);
  for (; p < s.head_len; p += 16) {
    ssm_columns<1>(s, p, s.head_len - p < 16 ? static_cast<int>(s.head_len - p) : 16);
  }
}

void l2_norm(float* x, int64_t n, float eps, float scale) {
  f32x16 squares = zero();
  over(n, [&](int64_t i, int len) IBID_LAMBDA {
    const f32x16 a = get(x + i, len);
    squares = fma(a, a, squares);
  });
  const f32x16 by = broadcast(scale / __builtin_sqrtf(hsum(squares) + eps));
  over(n, [=](int64_t i, int len) IBID_LAMBDA { put(x + i, mul(get(x + i, len), by), len); });
}

void sigmoid_mul(float* out, const float* x, const float* gate, int64_t n) {
  over(n, [=](int64_t i, int len) IBID_LAMBDA {
    put(out + i, div(get(x + i, len), add(broadcast(1.0f), exp(neg(get(gate + i, len))))), len);
  });
}

}  // namespace

extern const RecurrentTable kRecurrent;
const RecurrentTable kRecurrent = {conv, delta, ssm, l2_norm, sigmoid_mul};

}  // namespace ibid::cpu::IBID_ISA
