#include "model/group_quantise.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <numeric>
#include <string>

#include "base/check.h"
#include "kernels/math.h"
#include "kernels/ops.h"
#include "tensor/half.h"

namespace ibid {
namespace {

size_t at(int64_t i) { return static_cast<size_t>(i); }

// y[i] = (((y[i] - a[0] x[0][i]) - a[1] x[1][i]) - ...), n_x of up to four, for i below n.
void subtract(double* y, const double* const* x, const double* a, int n_x, int64_t n) {
  if (n_x == 4) {
    const double *x0 = x[0], *x1 = x[1], *x2 = x[2], *x3 = x[3];
    const double a0 = a[0], a1 = a[1], a2 = a[2], a3 = a[3];
    for (int64_t i = 0; i < n; ++i) y[i] = (((y[i] - a0 * x0[i]) - a1 * x1[i]) - a2 * x2[i]) - a3 * x3[i];
    return;
  }
  for (int v = 0; v < n_x; ++v) {
    const double* of = x[v];
    const double by = a[v];
    for (int64_t i = 0; i < n; ++i) y[i] -= by * of[i];
  }
}

float to_scale(DType dtype, double value) {
  constexpr float kLeast = 0x1p-24f, kMost = 65504.0f;  // of F16, and BF16's are numbers of F16 there too
  float scale = half_to_float(float_to_half(std::clamp(static_cast<float>(value), kLeast, kMost)));
  if (dtype == DType::kBF16) scale = bf16_to_float(float_to_bf16(scale));
  return std::clamp(scale, kLeast, dtype == DType::kBF16 ? 0x1.fep15f : kMost);
}

// One group's scale: of weights all 0 the least one.
template <typename Weight>
float scale_of(const Weight* w, const GroupFormat& format, double clip = 1) {
  double largest = 0;
  for (int64_t k = 0; k < format.group_len; ++k) largest = std::max(largest, std::fabs(static_cast<double>(w[k])));
  return to_scale(format.scales, clip * largest / (static_cast<double>((1 << format.bits) - 1) / 2));
}

int8_t code_of(double w, float scale, int bits) {
  const int half = 1 << (bits - 1);
  return static_cast<int8_t>(std::clamp(std::nearbyint(w / static_cast<double>(scale)), -static_cast<double>(half),
                                        static_cast<double>(half - 1)));
}

int64_t n_rows_of(std::span<const float> w, int64_t n_inputs, const GroupFormat& format) {
  CHECK(n_inputs > 0 && format.group_len > 0 && n_inputs % format.group_len == 0, "whole groups");
  return std::ssize(w) / n_inputs;
}

}  // namespace

namespace {

constexpr int64_t kBlockOfTokens = 256;
constexpr int64_t kSlab = 256;  // rows of H that are computed at once

}  // namespace

InputMoments::InputMoments(int64_t n) : n_inputs_(n), products_(at(n * n)), sizes_(at(n)), largest_(at(n)) {}

size_t InputMoments::workspace_bytes() { return ops::linear_workspace_bytes(kSlab, kBlockOfTokens); }

double InputMoments::mean_size(int64_t k) const {
  return sizes_[at(k)] / static_cast<double>(std::max<int64_t>(1, n_tokens_));
}

void InputMoments::add(Stream& s, const TensorView& x) {
  CHECK(x.dtype == DType::kF32 && x.row_len() == n_inputs_, "rows of the product's inputs");
  for (int64_t t = 0; t < x.n_rows(); ++t) {
    const float* row = x.row_as<const float>(t);
    rows_.insert(rows_.end(), row, row + n_inputs_);
    for (int64_t k = 0; k < n_inputs_; ++k) {
      const double size = std::fabs(static_cast<double>(row[k]));
      sizes_[at(k)] += size;
      largest_[at(k)] = std::max(largest_[at(k)], size);
    }
    if (std::ssize(rows_) == kBlockOfTokens * n_inputs_) add_block(s);
  }
  n_tokens_ += x.n_rows();
}

void InputMoments::finish(Stream& s) {
  if (rows_.empty()) return;
  rows_.resize(at(kBlockOfTokens * n_inputs_));  // rows of zeros add nothing
  add_block(s);
}

void InputMoments::add_block(Stream& s) {
  const int64_t K = n_inputs_;
  std::vector<float> turned(at(K * kBlockOfTokens)), sums(at(std::min(K, kSlab) * K));
  s.team().parallel_for(K, [&](int64_t k, int) {
    for (int64_t t = 0; t < kBlockOfTokens; ++t) turned[at(k * kBlockOfTokens + t)] = rows_[at(t * K + k)];
  });
  const Weight weight = prepare_weight(s, TensorView(turned.data(), DType::kF32, {K, kBlockOfTokens}));
  for (int64_t first = 0; first < K; first += kSlab) {
    const int64_t n = std::min(kSlab, K - first);
    const TensorView out(sums.data(), DType::kF32, {n, K});
    const Weight* const weights[] = {&weight};
    ops::linear(s, {&out, 1}, TensorView(turned.data() + first * kBlockOfTokens, DType::kF32, {n, kBlockOfTokens}),
                weights);
    s.team().parallel_for(n, [&](int64_t i, int) {
      double* const to = products_.data() + (first + i) * K;
      for (int64_t j = 0; j <= first + i; ++j) to[j] += static_cast<double>(sums[at(i * K + j)]);
    });
  }
  rows_.clear();
}

GroupCodes round_to_groups(ThreadTeam& team, std::span<const float> w, int64_t K, const GroupFormat& format,
                           std::span<const float> clips) {
  const int64_t N = n_rows_of(w, K, format), g = format.group_len, G = K / g;
  GroupCodes out = {std::vector<int8_t>(at(N * K)), std::vector<float>(at(N * G))};
  team.parallel_for(N, [&](int64_t n, int) {
    for (int64_t i = n * G; i < (n + 1) * G; ++i) {
      const float* group = w.data() + i * g;
      const float scale = scale_of(group, format, clips.empty() ? 1.0 : static_cast<double>(clips[at(i)]));
      out.scales[at(i)] = scale;
      for (int64_t k = 0; k < g; ++k)
        out.codes[at(i * g + k)] = code_of(static_cast<double>(group[k]), scale, format.bits);
    }
  });
  return out;
}

namespace {

// M, lower, with H = M^T M, in the place of H's lower triangle: from the last row to the first, as H's last row is M's
// times its last element. False: a pivot is not above 0.
bool factorise(ThreadTeam& team, std::vector<double>& h, int64_t K) {
  constexpr int64_t kPanel = 32, kRows = 8;
  const auto row = [&](int64_t i) { return h.data() + i * K; };
  // Takes from row i what rows [m, end) have there, from the last to the first.
  const auto take = [&](int64_t i, int64_t m, int64_t end) {
    for (int64_t last = end; last > m;) {
      const double* of[4];
      double by[4];
      int n = 0;
      for (; n < 4 && last > m; ++n) {
        of[n] = row(--last);
        by[n] = of[n][i];
      }
      subtract(row(i), of, by, n, i + 1);
    }
  };
  for (int64_t end = K; end > 0; end -= std::min(end, kPanel)) {
    const int64_t begin = std::max<int64_t>(0, end - kPanel);
    for (int64_t j = end - 1; j >= begin; --j) {
      take(j, j + 1, end);
      const double pivot = row(j)[j];
      if (!(pivot > 0) || !std::isfinite(pivot)) return false;
      const double root = std::sqrt(pivot);
      for (int64_t k = 0; k < j; ++k) row(j)[k] /= root;
      row(j)[j] = root;
    }
    team.parallel_for((begin + kRows - 1) / kRows, [&](int64_t task, int) {
      for (int64_t i = task * kRows; i < std::min(begin, (task + 1) * kRows); ++i) take(i, begin, end);
    });
  }
  return true;
}

// U = (M^T)^-1, upper: column by column from the diagonal up, 16 columns at a time.
std::vector<double> inverse_of_transposed(ThreadTeam& team, const std::vector<double>& m, int64_t K) {
  constexpr int64_t kColumns = 16;
  std::vector<double> u(at(K * K));
  team.parallel_for((K + kColumns - 1) / kColumns, [&](int64_t task, int) {
    const int64_t first = task * kColumns, end = std::min(K, first + kColumns);
    std::vector<double> part(at(end * kColumns));  // rows [0, end) of these columns
    for (int64_t i = end - 1; i >= 0; --i) {
      double sum[kColumns] = {};
      for (int64_t k = i + 1; k < end; ++k) {
        const double by = m[at(k * K + i)];
        const double* of = part.data() + k * kColumns;
        for (int64_t c = 0; c < kColumns; ++c) sum[c] -= by * of[c];
      }
      if (i >= first) sum[i - first] += 1;
      const double diagonal = m[at(i * K + i)];
      for (int64_t c = 0; c < kColumns; ++c) part[at(i * kColumns + c)] = sum[c] / diagonal;
      for (int64_t j = std::max(i, first); j < end; ++j) u[at(i * K + j)] = part[at(i * kColumns + j - first)];
    }
  });
  return u;
}

}  // namespace

Result<GptqFactor> gptq_factor(ThreadTeam& team, const InputMoments& moments, double damp, bool act_order) {
  const int64_t K = moments.n_inputs();
  if (moments.n_tokens() == 0) return invalid("GPTQ has seen no inputs of a product");
  GptqFactor out;
  out.n_inputs = K;
  out.is_dead.resize(at(K));
  std::vector<double> diagonal(at(K));
  double mean = 0;
  for (int64_t k = 0; k < K; ++k) {
    diagonal[at(k)] = moments.product(k, k);
    out.is_dead[at(k)] = diagonal[at(k)] == 0;
    if (out.is_dead[at(k)]) diagonal[at(k)] = 1;
    mean += diagonal[at(k)];
  }
  mean /= static_cast<double>(K);
  if (act_order) {
    out.order.resize(at(K));
    std::iota(out.order.begin(), out.order.end(), 0);
    std::ranges::stable_sort(out.order, [&](int32_t a, int32_t b) { return diagonal[at(a)] > diagonal[at(b)]; });
  }
  const auto input = [&](int64_t k) { return out.order.empty() ? k : int64_t{out.order[at(k)]}; };
  std::vector<double> h(at(K * K));
  team.parallel_for(K, [&](int64_t i, int) {
    for (int64_t j = 0; j < i; ++j) h[at(i * K + j)] = moments.product(input(i), input(j));
    h[at(i * K + i)] = diagonal[at(input(i))] + damp * mean;
  });
  if (!factorise(team, h, K)) {
    return invalid(
        "the inputs of a product depend on each other so far that GPTQ cannot divide by their products; more "
        "text or a larger --damp helps");
  }
  out.u = inverse_of_transposed(team, h, K);
  return out;
}

GroupCodes gptq(ThreadTeam& team, std::span<const float> w, const GptqFactor& factor, const GroupFormat& format) {
  const int64_t K = factor.n_inputs, N = n_rows_of(w, K, format), g = format.group_len, G = K / g;
  // Columns whose errors reach those after them together; a group never goes across two blocks.
  const int64_t block = g >= 128 ? g : 128 / g * g;
  constexpr int64_t kRows = 8;  // of a task, which share what they read of U
  GroupCodes out = {std::vector<int8_t>(at(N * K)), std::vector<float>(at(N * G))};
  const bool has_order = !factor.order.empty();
  const auto input = [&](int64_t k) { return has_order ? int64_t{factor.order[at(k)]} : k; };
  team.parallel_for((N + kRows - 1) / kRows, [&](int64_t task, int) {
    const int64_t first = task * kRows, n_rows = std::min(kRows, N - first);
    std::vector<double> rows(at(n_rows * K)), errors(at(n_rows * block));
    for (int64_t r = 0; r < n_rows; ++r) {
      for (int64_t k = 0; k < K; ++k) {
        const bool is_dead = factor.is_dead[at(input(k))];
        rows[at(r * K + k)] = is_dead ? 0 : static_cast<double>(w[at((first + r) * K + input(k))]);
      }
      for (int64_t i = 0; has_order && i < G; ++i)
        out.scales[at((first + r) * G + i)] = scale_of(w.data() + (first + r) * K + i * g, format);
    }
    for (int64_t begin = 0; begin < K; begin += block) {
      const int64_t end = std::min(K, begin + block);
      for (int64_t k = begin; k < end; ++k) {
        const double* u = factor.u.data() + k * K;
        const int64_t own = input(k);
        for (int64_t r = 0; r < n_rows; ++r) {
          double* row = rows.data() + r * K;
          float& scale = out.scales[at((first + r) * G + own / g)];
          if (!has_order && k % g == 0) scale = scale_of(row + k, format);
          const int8_t code = factor.is_dead[at(own)] ? int8_t{0} : code_of(row[k], scale, format.bits);
          out.codes[at((first + r) * K + own)] = code;
          const double error = (row[k] - static_cast<double>(scale) * code) / u[k];
          errors[at(r * block + k - begin)] = error;
          for (int64_t j = k + 1; j < end; ++j) row[j] -= error * u[j];
        }
      }
      for (int64_t k = begin; end < K && k < end; k += 4) {
        const auto n = static_cast<int>(std::min<int64_t>(4, end - k));
        const double* of[4];
        for (int v = 0; v < n; ++v) of[v] = factor.u.data() + (k + v) * K + end;
        for (int64_t r = 0; r < n_rows; ++r)
          subtract(rows.data() + r * K + end, of, errors.data() + r * block + k - begin, n, K - end);
      }
    }
  });
  return out;
}

namespace {

constexpr int kAlphas = 20;            // of AWQ's grids
constexpr int64_t kSampledRows = 128;  // of a matrix, that its search looks at
constexpr int64_t kTile = 16;          // rows whose errors are summed together

// Sum over up to kTile rows of d H d^T, where d is what rounding w s to groups changes of w.
double rounding_error(const InputMoments& moments, std::span<const double> s, std::span<const float* const> rows,
                      const GroupFormat& format) {
  const int64_t K = moments.n_inputs(), g = format.group_len;
  std::vector<double> d(at(K * kTile)), scaled(at(g));  // d[K, rows]
  for (size_t r = 0; r < rows.size(); ++r) {
    for (int64_t begin = 0; begin < K; begin += g) {
      for (int64_t k = 0; k < g; ++k) scaled[at(k)] = static_cast<double>(rows[r][begin + k]) * s[at(begin + k)];
      const float scale = scale_of(scaled.data(), format);
      for (int64_t k = 0; k < g; ++k) {
        const double value = static_cast<double>(scale) * code_of(scaled[at(k)], scale, format.bits);
        d[at((begin + k) * kTile) + r] = (value - scaled[at(k)]) / s[at(begin + k)];
      }
    }
  }
  double sums[kTile] = {};
  for (int64_t i = 0; i < K; ++i) {
    const double* h = moments.row(i);
    double beside[kTile] = {};
    for (int64_t j = 0; j < i; ++j) {
      for (int64_t r = 0; r < kTile; ++r) beside[r] += h[j] * d[at(j * kTile + r)];
    }
    for (int64_t r = 0; r < kTile; ++r) {
      const double own = d[at(i * kTile + r)];
      sums[r] += own * (2 * beside[r] + h[i] * own);
    }
  }
  return std::accumulate(sums, sums + kTile, 0.0);
}

}  // namespace

std::vector<double> awq_factors(ThreadTeam& team, const InputMoments& moments,
                                std::span<const std::span<const float>> matrices, const GroupFormat& format) {
  const int64_t K = moments.n_inputs(), g = format.group_len;
  // How much of its group's largest a weight is, in the mean over all outputs.
  std::vector<double> share(at(K));
  int64_t n_rows = 0;
  std::vector<std::vector<const float*>> tiles(1);
  for (const std::span<const float> w : matrices) {
    const int64_t N = n_rows_of(w, K, format);
    n_rows += N;
    for (int64_t i = 0; i < N * K; i += g) {
      double largest = 0;
      for (int64_t k = 0; k < g; ++k) largest = std::max(largest, std::fabs(static_cast<double>(w[at(i + k)])));
      for (int64_t k = 0; k < g; ++k)
        share[at(i % K + k)] += std::fabs(static_cast<double>(w[at(i + k)])) / (largest + 1e-6);
    }
    const int64_t n_sampled = std::min(N, kSampledRows);
    for (int64_t i = 0; i < n_sampled; ++i) {
      if (std::ssize(tiles.back()) == kTile) tiles.emplace_back();
      tiles.back().push_back(w.data() + i * N / n_sampled * K);
    }
  }
  std::vector<std::vector<double>> candidates(kAlphas + 1, std::vector<double>(at(K), 1.0));
  for (int a = 0; a < kAlphas; ++a) {
    std::vector<double>& s = candidates[at(a + 1)];
    const double alpha = static_cast<double>(a) / kAlphas;
    for (int64_t k = 0; k < K; ++k) {
      const double size = moments.mean_size(k);
      const double of_w = share[at(k)] / static_cast<double>(n_rows);
      const double up = size > 0 ? math::pow(size, alpha) : (a == 0 ? 1.0 : 0.0);
      const double down = of_w > 0 ? math::pow(of_w, 1 - alpha) : 0.0;
      s[at(k)] = std::max(up / (down + 1e-4), 1e-4);
    }
    const auto [least, most] = std::ranges::minmax(s);
    const double middle = std::sqrt(least * most);
    for (double& factor : s) factor /= middle;
  }
  std::vector<double> errors(candidates.size() * tiles.size());
  team.parallel_for(std::ssize(errors), [&](int64_t task, int) {
    const size_t c = at(task) / tiles.size(), t = at(task) % tiles.size();
    errors[at(task)] = rounding_error(moments, candidates[c], tiles[t], format);
  });
  size_t best = 0;
  double least = 0;
  for (size_t c = 0; c < candidates.size(); ++c) {
    double sum = 0;
    for (size_t t = 0; t < tiles.size(); ++t) sum += errors[c * tiles.size() + t];
    if (c == 0 || sum < least) {
      least = sum;
      best = c;
    }
  }
  return candidates[best];
}

std::vector<double> smooth_factors(const InputMoments& moments, std::span<const std::span<const float>> matrices,
                                   double a) {
  const int64_t K = moments.n_inputs();
  std::vector<double> of_w(at(K)), s(at(K), 1.0);
  for (const std::span<const float> w : matrices) {
    for (size_t i = 0; i < w.size(); ++i) {
      double& largest = of_w[i % at(K)];
      largest = std::max(largest, std::fabs(static_cast<double>(w[i])));
    }
  }
  for (int64_t k = 0; k < K; ++k) {
    const double of_x = moments.largest(k), weight = of_w[at(k)];
    if (of_x > 0 && weight > 0) s[at(k)] = math::pow(of_x, a) / math::pow(weight, 1 - a);
  }
  return s;
}

std::vector<float> awq_clips(ThreadTeam& team, const InputMoments& moments, std::span<const double> s,
                             std::span<const float> w, const GroupFormat& format) {
  const int64_t K = moments.n_inputs(), N = n_rows_of(w, K, format), g = format.group_len, G = K / g;
  std::vector<float> clips(at(N * G), 1.0f);
  team.parallel_for(N, [&](int64_t n, int) {
    std::vector<double> d(at(g));
    for (int64_t i = 0; i < G; ++i) {
      const float* group = w.data() + n * K + i * g;
      double least = 0;
      for (int step = 0; step < kAlphas / 2; ++step) {
        const double clip = 1 - static_cast<double>(step) / kAlphas;
        const float scale = scale_of(group, format, clip);
        double sum = 0;
        for (int64_t k = 0; k < g; ++k) {
          const auto was = static_cast<double>(group[k]);
          d[at(k)] = (static_cast<double>(scale) * code_of(was, scale, format.bits) - was) / s[at(i * g + k)];
          const double* h = moments.row(i * g + k) + i * g;
          double beside = 0;
          for (int64_t j = 0; j < k; ++j) beside += h[j] * d[at(j)];
          sum += d[at(k)] * (2 * beside + h[k] * d[at(k)]);
        }
        if (step == 0 || sum < least) {
          least = sum;
          clips[at(n * G + i)] = static_cast<float>(clip);
        }
      }
    }
  });
  return clips;
}

}  // namespace ibid
