#include "image/resize.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/check.h"

namespace ibid {
namespace {

double weight(Filter filter, double x) {
  x = std::fabs(x);
  if (filter == Filter::kBilinear) return x < 1.0 ? 1.0 - x : 0.0;
  constexpr double a = -0.5;
  if (x < 1.0) return ((a + 2) * x - (a + 3)) * x * x + 1;
  if (x < 2.0) return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a;
  return 0.0;
}

// One axis: which pixels each new pixel reads, and with which weights.
struct Axis {
  struct Taps {
    int32_t begin = 0;
    int32_t n = 0;
  };
  std::vector<Taps> taps;
  std::vector<int16_t> weights;  // [new pixels, most]
  int32_t most = 0;              // taps of a new pixel
  int shift = 0;                 // the weights are multiplied by 2^shift

  const int16_t* weights_of(int32_t i) const {
    return weights.data() + static_cast<size_t>(i) * static_cast<size_t>(most);
  }
};

Axis make_axis(int32_t n_old, int32_t n_new, Filter filter) {
  const double scale = static_cast<double>(n_old) / n_new;
  const double radius = filter == Filter::kBilinear ? 1.0 : 2.0;
  const double support = scale >= 1.0 ? radius * scale : radius;
  const double narrow = scale >= 1.0 ? 1.0 / scale : 1.0;
  Axis axis;
  axis.most = std::min(static_cast<int32_t>(std::ceil(support)) * 2 + 1, n_old);
  const auto most = static_cast<size_t>(axis.most);
  axis.taps.resize(static_cast<size_t>(n_new));
  std::vector<double> exact(static_cast<size_t>(n_new) * most);
  double largest = 0;
  for (int32_t i = 0; i < n_new; ++i) {
    const double center = scale * (i + 0.5);
    const int32_t begin = std::max(static_cast<int32_t>(center - support + 0.5), 0);
    const int32_t n = std::clamp(std::min(static_cast<int32_t>(center + support + 0.5), n_old) - begin, 0, axis.most);
    axis.taps[static_cast<size_t>(i)] = {begin, n};
    double* w = exact.data() + static_cast<size_t>(i) * most;
    double sum = 0;
    for (int32_t j = 0; j < n; ++j) {
      w[j] = weight(filter, (j + begin - center + 0.5) * narrow);
      sum += w[j];
    }
    for (int32_t j = 0; j < n; ++j) {
      if (sum != 0) w[j] /= sum;
      largest = std::max(largest, w[j]);
    }
  }
  while (axis.shift < 22 && static_cast<int>(0.5 + largest * (1 << (axis.shift + 1))) < (1 << 15)) ++axis.shift;
  axis.weights.resize(exact.size());
  for (size_t i = 0; i < exact.size(); ++i) {
    const double scaled = exact[i] * (1 << axis.shift);
    axis.weights[i] = static_cast<int16_t>(scaled < 0 ? scaled - 0.5 : scaled + 0.5);
  }
  return axis;
}

uint8_t narrowed(int32_t sum, int shift) { return static_cast<uint8_t>(std::clamp(sum >> shift, 0, 255)); }

// Sums fit in 32 bits: the weights of a pixel add up to 2^shift <= 2^22, and the negative ones are a fraction of that.
void resize_row(const uint8_t* from, const Axis& axis, uint8_t* to) {
  const int32_t half = axis.shift > 0 ? 1 << (axis.shift - 1) : 0;
  for (size_t i = 0; i < axis.taps.size(); ++i, to += 3) {
    const int16_t* w = axis.weights_of(static_cast<int32_t>(i));
    const uint8_t* pixel = from + 3 * axis.taps[i].begin;
    int32_t r = half, g = half, b = half;
    for (int32_t j = 0; j < axis.taps[i].n; ++j, pixel += 3) {
      r += w[j] * pixel[0];
      g += w[j] * pixel[1];
      b += w[j] * pixel[2];
    }
    to[0] = narrowed(r, axis.shift);
    to[1] = narrowed(g, axis.shift);
    to[2] = narrowed(b, axis.shift);
  }
}

}  // namespace

Picture resize_picture(const Picture& picture, PictureSize size, Filter filter) {
  CHECK(size.width >= 1 && size.height >= 1 && picture.size.width >= 1 && picture.size.height >= 1);
  if (size == picture.size) return picture;
  const bool same_width = size.width == picture.size.width, same_height = size.height == picture.size.height;
  const Axis across = make_axis(picture.size.width, size.width, filter);
  Axis down = make_axis(picture.size.height, size.height, filter);
  if (same_height) {  // each row is its own
    down.most = 1;
    down.shift = 0;
    down.weights.assign(static_cast<size_t>(size.height), 1);
    for (int32_t y = 0; y < size.height; ++y) down.taps[static_cast<size_t>(y)] = {y, 1};
  }
  Picture out;
  out.size = size;
  out.rgb.resize(static_cast<size_t>(size.n_pixels()) * 3);
  // Rows of the new width, as many as one new row reads, in a ring; each old row is resized once.
  const size_t n_row = out.row_bytes();
  std::vector<uint8_t> ring(static_cast<size_t>(down.most) * n_row);
  std::vector<int32_t> sums(n_row);
  int32_t n_made = 0;
  for (int32_t y = 0; y < size.height; ++y) {
    const Axis::Taps taps = down.taps[static_cast<size_t>(y)];
    for (n_made = std::max(n_made, taps.begin); n_made < taps.begin + taps.n; ++n_made) {
      uint8_t* row = ring.data() + static_cast<size_t>(n_made % down.most) * n_row;
      if (same_width) {
        std::copy_n(picture.row(n_made), n_row, row);
      } else {
        resize_row(picture.row(n_made), across, row);
      }
    }
    std::fill(sums.begin(), sums.end(), down.shift > 0 ? 1 << (down.shift - 1) : 0);
    const int16_t* w = down.weights_of(y);
    for (int32_t j = 0; j < taps.n; ++j) {
      const uint8_t* row = ring.data() + static_cast<size_t>((taps.begin + j) % down.most) * n_row;
      const int32_t times = w[j];
      for (size_t x = 0; x < n_row; ++x) sums[x] += times * row[x];
    }
    uint8_t* to = out.row(y);
    for (size_t x = 0; x < n_row; ++x) to[x] = narrowed(sums[x], down.shift);
  }
  return out;
}

}  // namespace ibid
