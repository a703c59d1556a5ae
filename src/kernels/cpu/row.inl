// The body of every instruction set's row.cc.
#include "kernels/cpu/row_table.h"
#include "kernels/cpu/simd.h"

#include "kernels/cpu/math.inl"

#define IBID_LAMBDA __attribute__((always_inline))

namespace ibid::math {
double log(double x);
}

namespace ibid::cpu::IBID_ISA {
namespace {

// body(i, n): lanes of [i, i + n), n = 16 but for the last.
template <typename Body>
IBID_INLINE void over(int64_t n, Body body) {
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) body(i, 16);
  if (i < n) body(i, static_cast<int>(n - i));
}
IBID_INLINE f32x16 get(const float* p, int n, float rest = 0.0f) { return n == 16 ? load(p) : load_n(p, n, rest); }
IBID_INLINE void put(float* p, f32x16 x, int n) {
  if (n == 16) {
    store(p, x);
  } else {
    store_n(p, x, n);
  }
}
template <typename F>
IBID_INLINE void map(float* out, const float* x, int64_t n, F f) {
  over(n, [=](int64_t i, int len) IBID_LAMBDA { put(out + i, f(get(x + i, len)), len); });
}
template <typename F>
IBID_INLINE void map(float* out, const float* x, const float* y, int64_t n, F f) {
  over(n, [=](int64_t i, int len) IBID_LAMBDA { put(out + i, f(get(x + i, len), get(y + i, len)), len); });
}

// Rows that are normalised at once: a row's sum is one chain of multiply-adds, which waits for itself.
constexpr int kNormRows = 4;

// element(row, i, len): what is summed of row `row` of these.
template <int ROWS, typename Element>
IBID_INLINE void norm_rows(float* out, int64_t out_stride, const float* x, int64_t x_stride, const float* weight,
                           int64_t n, float eps, Element element) {
  f32x16 squares[ROWS];
  for (int r = 0; r < ROWS; ++r) squares[r] = zero();
  over(n, [&](int64_t i, int len) IBID_LAMBDA {
    for (int r = 0; r < ROWS; ++r) {
      const f32x16 a = element(r, i, len);
      squares[r] = fma(a, a, squares[r]);
    }
  });
  float by[ROWS];
  for (int r = 0; r < ROWS; ++r) {
    const float mean = hsum(squares[r]) / static_cast<float>(n);
    by[r] = 1.0f / __builtin_sqrtf(mean + eps);
  }
  for (int r = 0; r < ROWS; ++r) {
    const f32x16 scale = broadcast(by[r]);
    map(out + r * out_stride, x + r * x_stride, weight, n,
        [=](f32x16 a, f32x16 w) IBID_LAMBDA { return mul(mul(a, scale), w); });
  }
}

void rms_norm(float* out, int64_t out_stride, const float* x, int64_t x_stride, const float* weight, int64_t n_rows,
              int64_t n, float eps) {
  const auto element = [&](int r, int64_t i, int len) IBID_LAMBDA { return get(x + r * x_stride + i, len); };
  for (; n_rows >= kNormRows; n_rows -= kNormRows, out += kNormRows * out_stride, x += kNormRows * x_stride) {
    norm_rows<kNormRows>(out, out_stride, x, x_stride, weight, n, eps, element);
  }
  for (; n_rows > 0; --n_rows, out += out_stride, x += x_stride) {
    norm_rows<1>(out, out_stride, x, x_stride, weight, n, eps, element);
  }
}

void add_rms_norm(float* out, int64_t out_stride, float* x, int64_t x_stride, const float* y, int64_t y_stride,
                  const float* weight, int64_t n_rows, int64_t n, float eps) {
  const auto element = [&](int r, int64_t i, int len) IBID_LAMBDA {
    float* at = x + r * x_stride + i;
    const f32x16 a = add(get(at, len), get(y + r * y_stride + i, len));
    put(at, a, len);
    return a;
  };
  const auto advance = [&](int rows) {
    n_rows -= rows;
    out += rows * out_stride;
    x += rows * x_stride;
    y += rows * y_stride;
  };
  for (; n_rows >= kNormRows; advance(kNormRows)) {
    norm_rows<kNormRows>(out, out_stride, x, x_stride, weight, n, eps, element);
  }
  for (; n_rows > 0; advance(1)) norm_rows<1>(out, out_stride, x, x_stride, weight, n, eps, element);
}

void layer_norm(float* out, const float* x, const float* weight, const float* bias, int64_t n, float eps) {
  f32x16 sum = zero();
  over(n, [&](int64_t i, int len) IBID_LAMBDA { sum = add(sum, get(x + i, len)); });
  const float mean = hsum(sum) / static_cast<float>(n);
  const f32x16 m = broadcast(mean);
  f32x16 squares = zero();
  over(n, [&](int64_t i, int len) IBID_LAMBDA {
    const f32x16 a = sub(get(x + i, len, mean), m);
    squares = fma(a, a, squares);
  });
  const f32x16 r = broadcast(1.0f / __builtin_sqrtf(hsum(squares) / static_cast<float>(n) + eps));
  over(n, [=](int64_t i, int len) IBID_LAMBDA {
    put(out + i, fma(mul(sub(get(x + i, len), m), r), get(weight + i, len), get(bias + i, len)), len);
  });
}

void add_rows(float* x, const float* y, int64_t n) {
  map(x, x, y, n, [](f32x16 a, f32x16 b) IBID_LAMBDA { return add(a, b); });
}
void scale_row(float* x, float factor, int64_t n) {
  const f32x16 f = broadcast(factor);
  map(x, x, n, [=](f32x16 a) IBID_LAMBDA { return mul(a, f); });
}
void silu_mul(float* out, const float* gate, const float* up, int64_t n) {
  map(out, gate, up, n, [](f32x16 g, f32x16 u) IBID_LAMBDA { return mul(silu(g), u); });
}
void gelu_mul(float* out, const float* gate, const float* up, int64_t n) {
  map(out, gate, up, n, [](f32x16 g, f32x16 u) IBID_LAMBDA { return mul(gelu_tanh(g), u); });
}
void clamped_silu_mul(float* out, const float* gate, const float* up, int64_t n, float limit) {
  const f32x16 most = broadcast(limit), least = broadcast(-limit), one = broadcast(1.0f), slope = broadcast(1.702f);
  map(out, gate, up, n, [=](f32x16 g, f32x16 u) IBID_LAMBDA {
    g = min(g, most);
    u = max(min(u, most), least);
    return div(mul(add(u, one), g), add(one, exp(neg(mul(slope, g)))));
  });
}

void rotate_halves(float* x, int64_t n_pairs, const float* cos_sin) {
  over(n_pairs, [=](int64_t i, int len) IBID_LAMBDA {
    const f32x16 c = get(cos_sin + i, len);
    const f32x16 s = get(cos_sin + n_pairs + i, len);
    const f32x16 a = get(x + i, len);
    const f32x16 b = get(x + n_pairs + i, len);
    put(x + i, fma(a, c, neg(mul(b, s))), len);
    put(x + n_pairs + i, fma(b, c, mul(a, s)), len);
  });
}

// Pairs lie side by side: the row is parted into its evens and odds, turned and put together again.
void rotate_neighbours(float* x, int64_t n_pairs, const float* cos_sin) {
  over(n_pairs, [=](int64_t i, int len) IBID_LAMBDA {
    alignas(64) float even[16] = {};
    alignas(64) float odd[16] = {};
    float* pair = x + 2 * i;
    for (int j = 0; j < len; ++j) {
      even[j] = pair[2 * j];
      odd[j] = pair[2 * j + 1];
    }
    const f32x16 c = get(cos_sin + i, len);
    const f32x16 s = get(cos_sin + n_pairs + i, len);
    const f32x16 a = load(even);
    const f32x16 b = load(odd);
    store(even, fma(a, c, neg(mul(b, s))));
    store(odd, fma(b, c, mul(a, s)));
    for (int j = 0; j < len; ++j) {
      pair[2 * j] = even[j];
      pair[2 * j + 1] = odd[j];
    }
  });
}

void rope(float* x, int64_t n_heads, int64_t head_len, int64_t n_pairs, bool interleaved, const float* cos_sin) {
  for (int64_t h = 0; h < n_heads; ++h, x += head_len) {
    if (interleaved) {
      rotate_neighbours(x, n_pairs, cos_sin);
    } else {
      rotate_halves(x, n_pairs, cos_sin);
    }
  }
}

void soft_cap(float* x, float cap, int64_t n) {
  const f32x16 c = broadcast(cap);
  map(x, x, n, [=](f32x16 a) IBID_LAMBDA { return mul(c, tanh(div(a, c))); });
}

void log_softmax(float* out, const float* x, int64_t n) {
  if (n == 0) return;
  // Four maxima at a time, which wait for nothing. In whatever order, m is the same but for the sign of a zero, and
  // then it has an equal of the other sign, log(s) is above 0 and the sign lost. A NaN is no maximum, or the first one
  // is all.
  f32x16 most = broadcast(x[0]);
  f32x16 mosts[4] = {most, most, most, most};
  int64_t at = 0;
  for (; at + 64 <= n; at += 64) {
    for (int j = 0; j < 4; ++j) mosts[j] = max(load(x + at + 16 * j), mosts[j]);
  }
  for (int j = 0; j < 4; ++j) most = max(mosts[j], most);
  over(n - at, [&](int64_t i, int len) IBID_LAMBDA { most = max(get(x + at + i, len, x[0]), most); });
  const f32x16 m = broadcast(hmax(most));
  f32x16 sum = zero();
  over(n, [&](int64_t i, int len)
              IBID_LAMBDA { sum = add(sum, exp_below_one(sub(get(x + i, len, -__builtin_inff()), m))); });
  const f32x16 log_sum = broadcast(static_cast<float>(math::log(static_cast<double>(hsum(sum)))));
  map(out, x, n, [=](f32x16 a) IBID_LAMBDA { return sub(sub(a, m), log_sum); });
}

// Rows of logits were written by all threads and lie in their caches. A memory page ahead, where the processor's own
// fetching stops: of 32 rows' draws a sixth less, with all that a step does besides ops.
constexpr int64_t kAhead = 1024;
void look(const float* x, int64_t n, float* most, int64_t* n_possible, bool* is_sound) {
  const f32x16 none = broadcast(-__builtin_inff()), too_much = broadcast(__builtin_inff());
  f32x16 highest = none;
  i32x16 possible = broadcast_i(0), unsound = broadcast_i(0);
  over(n, [&](int64_t i, int len) IBID_LAMBDA {
    __builtin_prefetch(x + i + kAhead);
    const f32x16 a = get(x + i, len, -__builtin_inff());
    highest = max(a, highest);
    possible = add(possible, select(less(none, a), broadcast_i(1), broadcast_i(0)));
    unsound = add(unsound, select(less(a, too_much), broadcast_i(0), broadcast_i(1)));
  });
  *most = hmax(highest);
  alignas(64) int32_t lanes[2][16];
  store_i(lanes[0], possible);
  store_i(lanes[1], unsound);
  *n_possible = 0;
  *is_sound = true;
  for (int i = 0; i < 16; ++i) {
    *n_possible += lanes[0][i];
    *is_sound &= lanes[1][i] == 0;
  }
}
void exp_below(float* out, const float* x, float most, int64_t n) {
  const f32x16 m = broadcast(most);
  map(out, x, n, [=](f32x16 a) IBID_LAMBDA { return exp_below_one(sub(a, m)); });
}
void block_max(float* out, const float* x, int64_t n) {
  for (; n >= 32; n -= 32, x += 32) *out++ = hmax(max(load(x), load(x + 16)));
  if (n == 0) return;
  const int first = n < 16 ? static_cast<int>(n) : 16;
  const float none = -__builtin_inff();
  *out = hmax(max(load_n(x, first, none), load_n(x + first, static_cast<int>(n) - first, none)));
}
template <typename Lead>
IBID_INLINE int64_t first_block(int64_t from, int64_t n, Lead lead) {
  for (; from + 64 <= n; from += 64) {
    f32x16 most = lead(from);
    for (int j = 16; j < 64; j += 16) most = max(lead(from + j), most);
    if (hmax(most) >= 0) break;
  }
  return from;
}
int64_t block_from(const float* x, int64_t from, int64_t n, float least) {
  const f32x16 l = broadcast(least);
  return first_block(from, n, [=](int64_t i) IBID_LAMBDA { return sub(load(x + i), l); });
}
// 24 bits of a word are a float without rounding. A weight of 0 by an infinite bound is no number, and no lead.
int64_t block_near(const uint32_t* words, const float* weights, int64_t from, int64_t n, float bound) {
  const f32x16 b = broadcast(bound), none = broadcast(-__builtin_inff());
  return first_block(from, n, [=](int64_t i) IBID_LAMBDA {
    const i32x16 word = load_i(reinterpret_cast<const int32_t*>(words + i));
    return max(sub(mul(b, load(weights + i)), from_int(shift_right<8>(word))), none);
  });
}

void exp_row(float* out, const float* x, int64_t n) {
  map(out, x, n, [](f32x16 a) IBID_LAMBDA { return exp(a); });
}
void tanh_row(float* out, const float* x, int64_t n) {
  map(out, x, n, [](f32x16 a) IBID_LAMBDA { return tanh(a); });
}
void silu_row(float* out, const float* x, int64_t n) {
  map(out, x, n, [](f32x16 a) IBID_LAMBDA { return silu(a); });
}
void gelu_row(float* out, const float* x, int64_t n) {
  map(out, x, n, [](f32x16 a) IBID_LAMBDA { return gelu(a); });
}
void gelu_tanh_row(float* out, const float* x, int64_t n) {
  map(out, x, n, [](f32x16 a) IBID_LAMBDA { return gelu_tanh(a); });
}

void to_f16(uint16_t* out, const float* x, int64_t n) {
  over(n, [=](int64_t i, int len) IBID_LAMBDA {
    if (len == 16) return store_f16(out + i, load(x + i));
    alignas(64) uint16_t lane[16];
    store_f16(lane, get(x + i, len));
    for (int j = 0; j < len; ++j) out[i + j] = lane[j];
  });
}
void to_bf16(uint16_t* out, const float* x, int64_t n) {
  over(n, [=](int64_t i, int len) IBID_LAMBDA {
    if (len == 16) return store_bf16(out + i, load(x + i));
    alignas(64) uint16_t lane[16];
    store_bf16(lane, get(x + i, len));
    for (int j = 0; j < len; ++j) out[i + j] = lane[j];
  });
}

void add_experts(float* out, const float* y, int64_t y_stride, const int32_t* rows, const float* weights,
                 const int32_t* group_end, int64_t n) {
  over(n, [=](int64_t i, int len) IBID_LAMBDA {
    f32x16 sums[8];
    int j = 0;
    for (int g = 0; g < 8; ++g) {
      sums[g] = zero();
      for (; j < group_end[g]; ++j) {
        sums[g] = fma(broadcast(weights[j]), get(y + rows[j] * y_stride + i, len), sums[g]);
      }
    }
    put(out + i,
        add(add(add(sums[0], sums[1]), add(sums[2], sums[3])), add(add(sums[4], sums[5]), add(sums[6], sums[7]))), len);
  });
}

}  // namespace

extern const RowTable kRow;
const RowTable kRow = {rms_norm,  add_rms_norm,  layer_norm, add_rows,    scale_row,   silu_mul,
                       gelu_mul,  rope,          soft_cap,   log_softmax, look,        exp_below,
                       block_max, block_from,    block_near, exp_row,     tanh_row,    silu_row,
                       gelu_row,  gelu_tanh_row, to_f16,     to_bf16,     add_experts, clamped_silu_mul};

}  // namespace ibid::cpu::IBID_ISA
