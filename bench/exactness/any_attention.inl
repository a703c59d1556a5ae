// Attention and row ops that keep no order of sums, as any_linear.inl.
#pragma once

#include <cmath>

#include "bench/exactness/any_order.h"
#include "kernels/cpu/attention.inl"

namespace ibid::cpu::IBID_ISA {
namespace {

// 2^(x log2 e) to 3 millionths; x at most 0, and below -87 a small number instead of smaller ones.
IBID_INLINE f32x16 short_exp(f32x16 x) {
  const f32x16 y = mul(max(x, broadcast(-87.0f)), broadcast(1.44269504f));
#if defined(__AVX512F__)
  const f32x16 whole = {_mm512_roundscale_ps(y.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
#else
  const i32x16 n = to_int(y);
  const f32x16 whole = from_int(n);
#endif
  const f32x16 f = sub(y, whole);
  f32x16 p = broadcast(0.00133336f);
  p = fma(p, f, broadcast(0.00961813f));
  p = fma(p, f, broadcast(0.05550411f));
  p = fma(p, f, broadcast(0.24022651f));
  p = fma(p, f, broadcast(0.69314718f));
  p = fma(p, f, broadcast(1.0f));
#if defined(__AVX512F__)
  return {_mm512_scalef_ps(p.v, whole.v)};
#else
  return from_bits(add(bits(p), shift_left<23>(n)));
#endif
}

constexpr float kHidden = -1e30f;

// One softmax step over TILES tiles for the n rows of a strip.
template <int TILES>
void strip_step(const AttentionTask& task, const Rows& rows, int strip, int tile_begin, const Tile (&tile)[TILES],
                State& state) {
  alignas(64) float p[TILES][kStripRows * kTileLen];
  alignas(64) float shrink[(kStripRows + 15) / 16 * 16] = {};
  alignas(64) static const float kOne[32] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
                                             1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
  const int first = strip * kStripRows, n = least(rows.n - strip * rows.strip_len, rows.strip_len);
  const float* q = rows.q + first * rows.q_len;
  int highest = 0, lowest = 0x7fffffff;
  for (int r = 0; r < n; ++r) {
    highest = most(highest, rows.end[first + r] - tile_begin);
    lowest = least(lowest, rows.end[first + r] - tile_begin);
  }
  if (highest <= 0) return;
  Range vectors[TILES];
  for (int t = 0; t < TILES; ++t) {
    vectors[t] = {0, most(0, least(highest - t * kTileLen, kTileLen) + 15) / 16};
    if (vectors[t].empty()) continue;
    if (n == kStripRows) {
      score<kStripRows, F16>(p[t], q, task.key_len, tile[t], vectors[t]);
    } else if (n > 6) {
      score<kStripRows, F16>(p[t], q, task.key_len, tile[t], vectors[t]);
    } else if (n > 3) {
      score<6, F16>(p[t], q, task.key_len, tile[t], vectors[t]);
    } else {
      score<3, F16>(p[t], q, task.key_len, tile[t], vectors[t]);
    }
  }
  for (int r = 0; r < n; ++r) {
    f32x16 top = broadcast(state.m[first + r]);
    for (int t = 0; t < TILES; ++t) {
      const Range visible = {0, least(rows.end[first + r] - tile_begin - t * kTileLen, kTileLen)};
      if (lowest < (t + 1) * kTileLen) hide(p[t] + r * kTileLen, vectors[t], visible);
      for (int v = 0; v < vectors[t].end; ++v) top = max(load(p[t] + r * kTileLen + 16 * v), top);
    }
    const float m = hmax(top);
    shrink[r] = state.m[first + r] - m;
    state.m[first + r] = m;
  }
  for (int r = 0; r < n; r += 16) store(shrink + r, short_exp(load(shrink + r)));
  for (int r = 0; r < n; ++r) {
    const f32x16 m = broadcast(state.m[first + r]);
    f32x16 sum = mul(load(state.l + 16 * (first + r)), broadcast(shrink[r]));
    for (int t = 0; t < TILES; ++t) {
      for (int v = 0; v < vectors[t].end; ++v) {
        const f32x16 x = load(p[t] + r * kTileLen + 16 * v);
        const f32x16 weight = select(less(broadcast(kHidden / 2), x), short_exp(sub(x, m)), zero());
        store(p[t] + r * kTileLen + 16 * v, weight);
        sum = add(sum, weight);
      }
    }
    store(state.l + 16 * (first + r), sum);
  }
  for (int t = 0; t < TILES; ++t) {
    if (vectors[t].empty()) continue;
    const Range all = {0, 16 * vectors[t].end};
    const Seen seen = {&all, n, all, all};
    float* o = state.o + first * rows.row_len;
    const float* by = t == 0 ? shrink : kOne;
    if (n > 6) {
      weigh<kStripRows, F16>(o, rows.row_len, p[t], by, tile[t], seen);
    } else if (n > 3) {
      weigh<6, F16>(o, rows.row_len, p[t], by, tile[t], seen);
    } else {
      weigh<3, F16>(o, rows.row_len, p[t], by, tile[t], seen);
    }
  }
}

template <int TILES>
void any(const AttentionTask& task) {
  Rows rows;
  read_rows(task, rows);
  State state;
  for (int r = 0; r < rows.n; ++r) {
    const int place = rows.place[r];
    state.m[place] = kHidden;
    store(state.l + 16 * place, zero());
    for (int d = 0; d < rows.row_len; d += 16) store(state.o + place * rows.row_len + d, zero());
  }
  for (int begin = 0; begin < rows.highest; begin += TILES * kTileLen) {
    Tile tile[TILES];
    for (int t = 0; t < TILES; ++t) {
      const int at = begin + t * kTileLen;
      const Range used = {0, least(rows.highest - at, kTileLen)};
      if (used.empty()) continue;
      tile_of_blocks(task, 0, at, used, rows.table_end, tile[t]);
    }
    for (int strip = 0; strip < rows.n_strips; ++strip) strip_step<TILES>(task, rows, strip, begin, tile, state);
  }
  for (int r = 0; r < rows.n; ++r) {
    const int place = rows.place[r];
    const f32x16 by = broadcast(1.0f / hsum(load(state.l + 16 * place)));
    float* out = task.out + (r / task.n_heads) * task.out_stride + (r % task.n_heads) * task.value_len;
    for (int d = 0; d < task.value_len; d += 16) store(out + d, mul(load(state.o + place * rows.row_len + d), by));
  }
}

constexpr bench::AnyAttention kAttentions[] = {{"softmax over 64", any<1>},
                                               {"softmax over 128", any<2>},
                                               {"softmax over 256", any<4>},
                                               {"ibid's, fast-math", run}};

void fast_rms_norm(float* out, const float* x, const float* weight, int64_t n, float eps) {
  float sum = 0.0f;
  for (int64_t i = 0; i < n; ++i) sum += x[i] * x[i];
  const float by = 1.0f / std::sqrt(sum / static_cast<float>(n) + eps);
  for (int64_t i = 0; i < n; ++i) out[i] = x[i] * by * weight[i];
}

void fast_log_softmax(float* out, const float* x, int64_t n) {
  float top = x[0];
  for (int64_t i = 1; i < n; ++i) top = x[i] > top ? x[i] : top;
  f32x16 sum[4] = {zero(), zero(), zero(), zero()};
  int64_t i = 0;
  for (; i + 64 <= n; i += 64) {
    for (int j = 0; j < 4; ++j) sum[j] = add(sum[j], short_exp(sub(load(x + i + 16 * j), broadcast(top))));
  }
  float rest = 0.0f;
  for (; i < n; ++i) rest += std::exp(x[i] - top);
  const float less = top + std::log(hsum(add(add(sum[0], sum[1]), add(sum[2], sum[3]))) + rest);
  for (i = 0; i < n; ++i) out[i] = x[i] - less;
}

void fast_silu_mul(float* out, const float* gate, const float* up, int64_t n) {
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) {
    const f32x16 g = load(gate + i);
    const f32x16 e = short_exp(neg(abs(g)));  // at most 1
    const f32x16 top = select(less(g, zero()), e, broadcast(1.0f));
    const f32x16 below = add(broadcast(1.0f), e);
#if defined(__AVX512F__)
    f32x16 by = {_mm512_rcp14_ps(below.v)};
#else
    f32x16 by = {_mm256_rcp_ps(below.lo), _mm256_rcp_ps(below.hi)};
#endif
    by = mul(by, sub(broadcast(2.0f), mul(below, by)));  // a step of Newton's
    store(out + i, mul(mul(mul(g, top), by), load(up + i)));
  }
  for (; i < n; ++i) out[i] = gate[i] / (1.0f + std::exp(-gate[i])) * up[i];
}

}  // namespace
}  // namespace ibid::cpu::IBID_ISA
