#include "tensor/quantise_grid.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <numeric>
#include <utility>
#include <vector>

#include "base/check.h"
#include "tensor/grid_formats.h"
#include "tensor/half.h"

namespace ibid {
namespace {

constexpr int kSuper = 256, kSub = 32, kNear = 16;

// A grid of points of N sizes, each one of kLevels; and of each point that is not in it those that are near.
template <int N, int kLevels>
class NearPoints {
 public:
  using Sizes = std::array<float, N>;

  // `grid` has a place in `sizes` for each element, of two bits (N = 8) or four.
  NearPoints(const uint16_t* grid, int n_points, const int8_t* sizes) {
    for (int level = 0; level < kLevels; ++level) sizes_[static_cast<size_t>(level)] = sizes[level];
    for (int p = 0; p < n_points; ++p) {
      Sizes point;
      for (int i = 0; i < N; ++i) {
        const int place = grid[p] >> (16 / N * i) & ((1 << (16 / N)) - 1);
        point[static_cast<size_t>(i)] = sizes_[static_cast<size_t>(place)];
      }
      points_.push_back(point);
    }
    int n_patterns = 1;
    for (int i = 0; i < N; ++i) n_patterns *= kLevels;
    near_.resize(static_cast<size_t>(n_patterns));
    for (int pattern = 0; pattern < n_patterns; ++pattern) list(pattern);
  }

  const Sizes& point(int index) const { return points_[static_cast<size_t>(index)]; }

  // The index of the point with the least sum of w (x - scale * point)^2, of those near to x / scale.
  int best(const float* x, const float* w, float scale) const {
    const float factor = scale > 0.0f ? 1.0f / scale : 0.0f;
    size_t pattern = 0;
    float target[N];
    for (int i = N - 1; i >= 0; --i) {
      target[i] = x[i] * factor;
      size_t level = 0;
      while (level + 1 < kLevels && target[i] > 0.5f * (sizes_[level] + sizes_[level + 1])) ++level;
      pattern = pattern * kLevels + level;
    }
    int best = near_[pattern][0];
    float least = INFINITY;
    for (const uint16_t index : near_[pattern]) {
      const Sizes& p = points_[index];
      float error = 0.0f;
      for (int i = 0; i < N; ++i) {
        const float d = target[i] - p[static_cast<size_t>(i)];
        error += w[i] * d * d;
      }
      if (error < least) best = index, least = error;
    }
    return best;
  }

 private:
  void list(int pattern) {
    Sizes at;
    for (int i = 0, rest = pattern; i < N; ++i, rest /= kLevels)
      at[static_cast<size_t>(i)] = sizes_[static_cast<size_t>(rest % kLevels)];
    std::vector<std::pair<float, uint16_t>> all;
    for (size_t p = 0; p < points_.size(); ++p) {
      float distance = 0.0f;
      for (size_t i = 0; i < N; ++i) distance += (at[i] - points_[p][i]) * (at[i] - points_[p][i]);
      all.emplace_back(distance, static_cast<uint16_t>(p));
    }
    std::partial_sort(all.begin(), all.begin() + kNear, all.end());
    for (size_t k = 0; k < kNear; ++k) near_[static_cast<size_t>(pattern)][k] = all[k].second;
  }

  std::array<float, kLevels> sizes_;
  std::vector<Sizes> points_;
  std::vector<std::array<uint16_t, kNear>> near_;
};

// What a format is: how many elements are a point, of how many sizes; the elements of a scale; the factor that whole
// numbers count by; whether the eighth sign follows from the others.
template <typename Block>
struct Form;
template <>
struct Form<BlockIQ2_XXS> {
  static constexpr int N = 8, kLevels = 3, kScaleLen = 32;
  static constexpr float kUnit = 0.125f;
  static constexpr bool kParity = true;
  static const NearPoints<N, kLevels>& near() {
    static const NearPoints<N, kLevels> kTable(kGridIQ2_XXS, 256, kIQ2Values);
    return kTable;
  }
};
template <>
struct Form<BlockIQ2_XS> {
  static constexpr int N = 8, kLevels = 3, kScaleLen = 16;
  static constexpr float kUnit = 0.125f;
  static constexpr bool kParity = true;
  static const NearPoints<N, kLevels>& near() {
    static const NearPoints<N, kLevels> kTable(kGridIQ2_XS, 512, kIQ2Values);
    return kTable;
  }
};
template <>
struct Form<BlockIQ2_S> {
  static constexpr int N = 8, kLevels = 3, kScaleLen = 16;
  static constexpr float kUnit = 0.125f;
  static constexpr bool kParity = false;
  static const NearPoints<N, kLevels>& near() {
    static const NearPoints<N, kLevels> kTable(kGridIQ2_S, 1024, kIQ2Values);
    return kTable;
  }
};
template <>
struct Form<BlockIQ3_XXS> {
  static constexpr int N = 4, kLevels = 8, kScaleLen = 32;
  static constexpr float kUnit = 0.25f;
  static constexpr bool kParity = true;
  static const NearPoints<N, kLevels>& near() {
    static const NearPoints<N, kLevels> kTable(kGridIQ3_XXS, 256, kIQ3XXSValues);
    return kTable;
  }
};
template <>
struct Form<BlockIQ3_S> {
  static constexpr int N = 4, kLevels = 8, kScaleLen = 32;
  static constexpr float kUnit = 1.0f;
  static constexpr bool kParity = false;
  static const NearPoints<N, kLevels>& near() {
    static const NearPoints<N, kLevels> kTable(kGridIQ3_S, 512, kIQ3SValues);
    return kTable;
  }
};

// One block of 256 in the making.
template <typename Block>
class GridBlock {
  using F = Form<Block>;
  static constexpr int kScales = kSuper / F::kScaleLen, kPoints = kSuper / F::N, kPointsOfScale = F::kScaleLen / F::N;

 public:
  GridBlock(const float* x, const float* importance) {
    float squares = 0.0f;
    for (int i = 0; i < kSuper; ++i) squares += x[i] * x[i];
    const float twice_mean = 2.0f * squares / kSuper;
    for (int i = 0; i < kSuper; ++i) {
      w_[i] = (importance == nullptr ? 1.0f : importance[i]) * std::sqrt(twice_mean + x[i] * x[i]);
    }
    for (int g = 0; g < kSuper / 8; ++g) take_signs(x + 8 * g, g);
  }

  void quantise(Block& b) {
    float scales[kScales], most = 0.0f;
    for (int s = 0; s < kScales; ++s) most = std::max(most, scales[s] = fit(s));
    std::memset(&b, 0, sizeof b);
    float d = half_of(most / (31.0f * F::kUnit), b.scale);
    // Twice: the whole numbers follow the scale, and the scale the points that these lead to.
    for (int turn = 0; turn < 2; ++turn) {
      for (int s = 0; s < kScales; ++s) {
        const float whole = d > 0.0f ? (scales[s] / (d * F::kUnit) - 1.0f) / 2.0f : 0.0f;
        whole_[s] = whole > 0.0f ? std::min(15, static_cast<int>(whole + 0.5f)) : 0;
        choose(s, d * F::kUnit * static_cast<float>(2 * whole_[s] + 1));
      }
      if (turn == 0) d = half_of(refit(d), b.scale);
    }
    for (int p = 0; p < kPoints; ++p) put(b, p, index_[p]);
    for (int g = 0; g < kSuper / 8; ++g) put_signs(b, g, signs_[g]);
    for (int s = 0; s < kScales; ++s) put_scale(b, s, static_cast<uint32_t>(whole_[s]));
  }

 private:
  static float half_of(float x, uint16_t& half) {
    half = float_to_half(x);
    return half_to_float(half);
  }

  // Sizes of eight elements; one that takes the other sign is below zero.
  void take_signs(const float* x, int g) {
    uint32_t signs = 0;
    int least = 0;
    for (int i = 0; i < 8; ++i) {
      const int at = 8 * g + i;
      x_[at] = std::fabs(x[i]);
      signs |= static_cast<uint32_t>(x[i] < 0.0f) << i;
      if (w_[at] * x[i] * x[i] < w_[8 * g + least] * x[least] * x[least]) least = i;
    }
    if (F::kParity && (std::popcount(signs) & 1) != 0) {
      signs ^= 1u << least;
      x_[8 * g + least] = -x_[8 * g + least];
    }
    signs_[g] = signs;
  }

  void choose(int s, float scale) {
    for (int p = s * kPointsOfScale; p < (s + 1) * kPointsOfScale; ++p)
      index_[p] = F::near().best(x_ + p * F::N, w_ + p * F::N, scale);
  }
  // Sums of w x point and w point^2 over the points of a scale.
  std::pair<float, float> sums(int s) const {
    float xp = 0.0f, pp = 0.0f;
    for (int p = s * kPointsOfScale; p < (s + 1) * kPointsOfScale; ++p) {
      const auto& point = F::near().point(index_[p]);
      for (int i = 0; i < F::N; ++i) {
        const float v = point[static_cast<size_t>(i)], w = w_[p * F::N + i];
        xp += w * x_[p * F::N + i] * v;
        pp += w * v * v;
      }
    }
    return {xp, pp};
  }

  // The scale of the points nearest to a sub-block: the largest size goes to one of 17 places about the largest of the
  // format, and least squares fit the scale to what follows.
  float fit(int s) {
    float largest = 0.0f;
    for (int i = 0; i < F::kScaleLen; ++i) largest = std::max(largest, x_[s * F::kScaleLen + i]);
    if (!(largest > 0.0f)) return 0.0f;
    const float end = largest_size();
    float best = 0.0f, best_gain = 0.0f;
    for (int step = 0; step <= 16; ++step) {
      choose(s, largest / (end * (0.7f + 0.05f * static_cast<float>(step))));
      const auto [xp, pp] = sums(s);
      if (!(xp > 0.0f) || !(pp > 0.0f)) continue;
      if (const float gain = xp * xp / pp; gain > best_gain) best = xp / pp, best_gain = gain;
    }
    return best;
  }
  static float largest_size() {
    const auto& point = F::near().point(0);
    static const float kLargest = [&] {
      float most = point[0];
      for (int i = 0; i < 256; ++i) most = std::max(most, *std::ranges::max_element(F::near().point(i)));
      return most;
    }();
    return kLargest;
  }

  float refit(float d) const {
    float above = 0.0f, below = 0.0f;
    for (int s = 0; s < kScales; ++s) {
      const float q = F::kUnit * static_cast<float>(2 * whole_[s] + 1);
      const auto [xp, pp] = sums(s);
      above += q * xp;
      below += q * q * pp;
    }
    return above > 0.0f && below > 0.0f ? above / below : d;
  }

  static void put(BlockIQ2_XXS& b, int p, int index) { b.groups[p / 4][p % 4] = static_cast<uint8_t>(index); }
  static void put(BlockIQ2_XS& b, int p, int index) { b.indices[p] = static_cast<uint16_t>(index); }
  static void put(BlockIQ2_S& b, int p, int index) {
    b.indices[p] = static_cast<uint8_t>(index);
    b.high[p / 4] = static_cast<uint8_t>(b.high[p / 4] | index >> 8 << (2 * (p % 4)));
  }
  static void put(BlockIQ3_XXS& b, int p, int index) { b.indices[p] = static_cast<uint8_t>(index); }
  static void put(BlockIQ3_S& b, int p, int index) {
    b.indices[p] = static_cast<uint8_t>(index);
    b.high[p / 8] = static_cast<uint8_t>(b.high[p / 8] | index >> 8 << (p % 8));
  }

  static void add_bits(uint8_t* word, uint32_t bits) {
    bits |= four_bytes(word);
    std::memcpy(word, &bits, sizeof bits);
  }
  static void put_signs(BlockIQ2_XXS& b, int g, uint32_t signs) {
    add_bits(b.groups[g / 4] + 4, (signs & 127) << (7 * (g % 4)));
  }
  static void put_signs(BlockIQ2_XS& b, int g, uint32_t signs) {
    b.indices[g] = static_cast<uint16_t>(b.indices[g] | (signs & 127) << 9);
  }
  static void put_signs(BlockIQ2_S& b, int g, uint32_t signs) { b.signs[g] = static_cast<uint8_t>(signs); }
  static void put_signs(BlockIQ3_XXS& b, int g, uint32_t signs) {
    add_bits(b.signs[g / 4], (signs & 127) << (7 * (g % 4)));
  }
  static void put_signs(BlockIQ3_S& b, int g, uint32_t signs) { b.signs[g] = static_cast<uint8_t>(signs); }

  static void put_scale(BlockIQ2_XXS& b, int s, uint32_t whole) { add_bits(b.groups[s] + 4, whole << 28); }
  static void put_scale(BlockIQ3_XXS& b, int s, uint32_t whole) { add_bits(b.signs[s], whole << 28); }
  template <typename Other>
  static void put_scale(Other& b, int s, uint32_t whole) {
    b.scales[s / 2] = static_cast<uint8_t>(b.scales[s / 2] | whole << (4 * (s % 2)));
  }

  float x_[kSuper], w_[kSuper];
  uint32_t signs_[kSuper / 8];
  int index_[kPoints], whole_[kScales];
};

template <typename Block>
void quantise_blocks_by_grid(const float* src, void* dst, int64_t n, const float* importance) {
  DCHECK(n % kSuper == 0, "a row is a whole number of blocks");
  auto* bytes = static_cast<std::byte*>(dst);
  for (int64_t i = 0; i < n; i += kSuper, bytes += sizeof(Block)) {
    Block block;
    GridBlock<Block>(src + i, importance != nullptr ? importance + i : nullptr).quantise(block);
    std::memcpy(bytes, &block, sizeof(Block));
  }
}

}  // namespace

bool has_grid_search(DType dtype) { return dtype >= DType::kIQ2_XXS && dtype <= DType::kIQ3_S; }

void quantise_by_grid(DType dtype, const float* src, void* dst, int64_t n, const float* importance) {
  switch (dtype) {
    case DType::kIQ2_XXS:
      return quantise_blocks_by_grid<BlockIQ2_XXS>(src, dst, n, importance);
    case DType::kIQ2_XS:
      return quantise_blocks_by_grid<BlockIQ2_XS>(src, dst, n, importance);
    case DType::kIQ2_S:
      return quantise_blocks_by_grid<BlockIQ2_S>(src, dst, n, importance);
    case DType::kIQ3_XXS:
      return quantise_blocks_by_grid<BlockIQ3_XXS>(src, dst, n, importance);
    case DType::kIQ3_S:
      return quantise_blocks_by_grid<BlockIQ3_S>(src, dst, n, importance);
    default:
      CHECK(false, "a format without a grid search");
  }
}

}  // namespace ibid
