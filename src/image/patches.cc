#include "image/patches.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>

#include "base/check.h"

namespace ibid {
namespace {

constexpr int32_t kMaxSide = 8192;  // of a resized picture
constexpr int64_t kMaxPixels = int64_t{1} << 26;
constexpr int32_t kMaxUnit = 1024;          // side of a cell in pixels
constexpr int32_t kMaxShortestSide = 1024;  // the other side may be 200 times as long before it is cut

Error bad_rule(std::string what) { return invalid("The preprocessing of pictures has " + std::move(what) + "."); }

std::string sides(PictureSize size) { return std::to_string(size.width) + " x " + std::to_string(size.height); }

// Python's round(): halves to the even neighbour.
double rounded(double x) { return std::nearbyint(x); }

// smart_resize of transformers' qwen2_vl: doubles as Python has them.
PictureSize within_range(const PatchRule& rule, PictureSize picture) {
  const double unit = rule.patch * rule.merge;
  const auto h = static_cast<double>(picture.height), w = static_cast<double>(picture.width);
  double to_h = rounded(h / unit) * unit, to_w = rounded(w / unit) * unit;
  if (to_h * to_w > static_cast<double>(rule.max_pixels)) {
    const double beta = std::sqrt(h * w / static_cast<double>(rule.max_pixels));
    to_h = std::max(unit, std::floor(h / beta / unit) * unit);
    to_w = std::max(unit, std::floor(w / beta / unit) * unit);
  } else if (to_h * to_w < static_cast<double>(rule.min_pixels)) {
    const double beta = std::sqrt(static_cast<double>(rule.min_pixels) / (h * w));
    to_h = std::ceil(h * beta / unit) * unit;
    to_w = std::ceil(w * beta / unit) * unit;
  }
  return {static_cast<int32_t>(to_w), static_cast<int32_t>(to_h)};
}

// get_aspect_ratio_preserving_size of transformers' gemma4.
Result<PictureSize> within_budget(const PatchRule& rule, PictureSize picture) {
  const int64_t unit = int64_t{rule.patch} * rule.merge;
  const auto h = static_cast<double>(picture.height), w = static_cast<double>(picture.width);
  const int64_t most = int64_t{rule.max_tokens} * unit * unit;
  const double factor = std::sqrt(static_cast<double>(most) / (h * w));
  auto to_h = static_cast<int64_t>(std::floor(factor * h / static_cast<double>(unit))) * unit;
  auto to_w = static_cast<int64_t>(std::floor(factor * w / static_cast<double>(unit))) * unit;
  const int64_t longest = rule.max_tokens * unit;
  if (to_h == 0 && to_w == 0)
    return bad_rule("a budget of tokens that is too small for the picture of " + sides(picture));
  if (to_h == 0) {
    to_h = unit;
    to_w = std::min(static_cast<int64_t>(std::floor(w / h)) * unit, longest);
  } else if (to_w == 0) {
    to_w = unit;
    to_h = std::min(static_cast<int64_t>(std::floor(h / w)) * unit, longest);
  }
  if (to_h * to_w > most) return bad_rule("a budget of tokens that is too small for the picture of " + sides(picture));
  return PictureSize{static_cast<int32_t>(to_w), static_cast<int32_t>(to_h)};
}

// get_resize_output_image_size of transformers' pixtral.
PictureSize within_longest(const PatchRule& rule, PictureSize picture) {
  const int64_t unit = int64_t{rule.patch} * rule.merge;
  int64_t h = picture.height, w = picture.width;
  const double ratio = std::max(static_cast<double>(h) / rule.longest_side, static_cast<double>(w) / rule.longest_side);
  if (ratio > 1) {
    h = static_cast<int64_t>(std::floor(static_cast<double>(h) / ratio));
    w = static_cast<int64_t>(std::floor(static_cast<double>(w) / ratio));
  }
  h = std::max<int64_t>(h, 1);
  w = std::max<int64_t>(w, 1);
  return {static_cast<int32_t>((w + unit - 1) / unit * unit), static_cast<int32_t>((h + unit - 1) / unit * unit)};
}

// The size before the middle is cut out.
PictureSize of_shortest(const PatchRule& rule, PictureSize picture) {
  const auto [shorter, longer] = std::minmax(picture.width, picture.height);
  const auto to = static_cast<int32_t>(static_cast<double>(int64_t{rule.shortest_side} * longer) / shorter);
  return picture.width <= picture.height ? PictureSize{rule.shortest_side, to} : PictureSize{to, rule.shortest_side};
}

// What a value of 0 to 255 becomes in each channel.
using Levels = std::array<std::array<float, 256>, 3>;

Levels levels_of(const PatchRule& rule) {
  Levels out;
  for (size_t c = 0; c < 3; ++c) {
    const float mean = rule.mean[c] * 255.0f, std = rule.std[c] * 255.0f;
    for (size_t x = 0; x < 256; ++x) {
      const auto value = static_cast<float>(x);
      out[c][x] = rule.normalise ? (value - mean) / std : value * static_cast<float>(1.0 / 255.0);
    }
  }
  return out;
}

// Calls `patch(x, y)` with the upper left pixel of each patch, in the rule's order.
template <typename Patch>
void each_patch(const PatchRule& rule, const PatchGrid& grid, Patch patch) {
  const int64_t cell = rule.layout == PatchLayout::kMergedCells ? rule.merge : 1;
  for (int64_t y = 0; y < grid.grid_h; y += cell) {
    for (int64_t x = 0; x < grid.grid_w; x += cell) {
      for (int64_t i = 0; i < cell * cell; ++i) patch((x + i % cell) * rule.patch, (y + i / cell) * rule.patch);
    }
  }
}

template <typename T>
void add(Sha256& sum, const T& value) {
  sum.add(&value, sizeof value);
}

}  // namespace

Status check_patch_rule(const PatchRule& rule) {
  if (rule.patch < 1 || rule.patch > 128) return bad_rule("patches of " + std::to_string(rule.patch) + " pixels");
  if (rule.merge < 1 || rule.merge > 64) return bad_rule("cells of " + std::to_string(rule.merge) + " patches a side");
  const bool films = rule.layout == PatchLayout::kMergedCells;
  if (rule.n_times < 1 || rule.n_times > (films ? 8 : 1)) {
    return bad_rule("patches of " + std::to_string(rule.n_times) + " frames");
  }
  const int32_t unit = rule.patch * rule.merge;
  if (unit > kMaxUnit) return bad_rule("cells of " + std::to_string(unit) + " pixels a side");
  const auto is_side = [](int32_t n) { return n >= 1 && n <= kMaxSide; };
  const auto one_of = [&](const char* name, int32_t n) {
    return is_side(n) ? Status() : Status(bad_rule(std::string(name) + " of " + std::to_string(n) + " pixels"));
  };
  switch (rule.sizing) {
    case Sizing::kShortestSide:
      if (rule.shortest_side < 1 || rule.shortest_side > kMaxShortestSide) {
        return bad_rule("a shortest side of " + std::to_string(rule.shortest_side) + " pixels");
      }
      if (std::max(rule.width, rule.height) > rule.shortest_side)
        return bad_rule("a cut that is larger than the picture");
      [[fallthrough]];
    case Sizing::kFixed:
      TRY(one_of("a width", rule.width));
      TRY(one_of("a height", rule.height));
      // What a convolution leaves out on the right and below.
      if (rule.width < unit || rule.height < unit || rule.width / rule.patch % rule.merge != 0 ||
          rule.height / rule.patch % rule.merge != 0) {
        return bad_rule("a size of " + sides({rule.width, rule.height}) + " pixels, which are no whole cells of " +
                        std::to_string(unit));
      }
      break;
    case Sizing::kPixelRange:
      if (rule.min_pixels < 1 || rule.max_pixels < rule.min_pixels || rule.max_pixels < int64_t{unit} * unit ||
          rule.max_pixels > kMaxPixels) {
        return bad_rule("from " + std::to_string(rule.min_pixels) + " to " + std::to_string(rule.max_pixels) +
                        " pixels");
      }
      break;
    case Sizing::kTokenBudget:
      if (rule.max_tokens < 1 || rule.max_tokens > kMaxPixels / (int64_t{unit} * unit)) {
        return bad_rule("a budget of " + std::to_string(rule.max_tokens) + " tokens");
      }
      break;
    case Sizing::kLongestSide:
      TRY(one_of("a longest side", rule.longest_side));
      break;
  }
  if (rule.normalise) {
    for (size_t c = 0; c < 3; ++c) {
      if (!std::isfinite(rule.mean[c]) || !std::isfinite(rule.std[c]) || !(rule.std[c] > 0)) {
        return bad_rule("a mean or deviation of colours that is no number above zero");
      }
    }
  }
  return {};
}

Result<PatchGrid> patch_grid(const PatchRule& rule, PictureSize picture) {
  CHECK(picture.width >= 1 && picture.height >= 1);
  const auto [shorter, longer] = std::minmax(picture.width, picture.height);
  if (int64_t{longer} > int64_t{200} * shorter) {
    return invalid("The picture is " + sides(picture) + " pixels; a side may be 200 times as long as the other.");
  }
  PatchGrid grid;
  switch (rule.sizing) {
    case Sizing::kFixed:
    case Sizing::kShortestSide:
      grid.resized = {rule.width, rule.height};
      break;
    case Sizing::kPixelRange:
      grid.resized = within_range(rule, picture);
      break;
    case Sizing::kTokenBudget: {
      ASSIGN_OR_RETURN(grid.resized, within_budget(rule, picture));
      break;
    }
    case Sizing::kLongestSide:
      grid.resized = within_longest(rule, picture);
      break;
  }
  grid.grid_h = grid.resized.height / rule.patch;
  grid.grid_w = grid.resized.width / rule.patch;
  if (grid.n_patches() == 0) {
    return invalid("The picture is " + sides(picture) + " pixels, which is less than one patch after it is resized.");
  }
  grid.n_tokens = grid.grid_h / rule.merge * (grid.grid_w / rule.merge);
  return grid;
}

Result<Patches> make_patches(const PatchRule& rule, const Picture& picture) {
  ASSIGN_OR_RETURN(const PatchGrid grid, patch_grid(rule, picture.size));
  const bool cut = rule.sizing == Sizing::kShortestSide;
  const PictureSize whole = cut ? of_shortest(rule, picture.size) : grid.resized;
  const Picture resized = resize_picture(picture, whole, rule.filter);
  const int32_t left = (whole.width - grid.resized.width) / 2, top = (whole.height - grid.resized.height) / 2;

  Patches out;
  out.grid = grid;
  const auto p = static_cast<size_t>(rule.patch), n_times = static_cast<size_t>(rule.n_times);
  const size_t n_frame = p * p;
  out.patch_values = static_cast<int64_t>(3 * n_times * n_frame);
  out.values.resize(static_cast<size_t>(grid.n_patches() * out.patch_values));
  const Levels levels = levels_of(rule);
  float* to = out.values.data();
  each_patch(rule, grid, [&](int64_t x, int64_t y) {
    for (size_t i = 0; i < p; ++i) {
      const uint8_t* pixel = resized.row(top + static_cast<int32_t>(y + static_cast<int64_t>(i))) + 3 * (left + x);
      for (size_t j = 0; j < p; ++j, pixel += 3) {
        for (size_t c = 0; c < 3; ++c) {
          const float value = levels[c][pixel[c]];
          if (rule.layout == PatchLayout::kChannelsLast) {
            to[(i * p + j) * 3 + c] = value;
          } else {
            for (size_t t = 0; t < n_times; ++t) to[(c * n_times + t) * n_frame + i * p + j] = value;
          }
        }
      }
    }
    to += out.patch_values;
  });
  return out;
}

PictureDigest picture_digest(const Picture& picture, const PatchRule& rule) {
  Sha256 sum;
  constexpr std::string_view kName = "ibid picture 1";
  sum.add(kName.data(), kName.size());
  add(sum, picture.size.width);
  add(sum, picture.size.height);
  sum.add(picture.rgb.data(), picture.rgb.size());
  // By name, so that a new field does not compile until it is here.
  const auto& [sizing, filter, layout, patch, merge, n_times, width, height, min_pixels, max_pixels, max_tokens,
               longest_side, shortest_side, normalise, mean, std] = rule;
  for (const int64_t number :
       {int64_t(sizing), int64_t(filter), int64_t(layout), int64_t{patch}, int64_t{merge}, int64_t{n_times},
        int64_t{width}, int64_t{height}, min_pixels, max_pixels, int64_t{max_tokens}, int64_t{longest_side},
        int64_t{shortest_side}, int64_t{normalise}}) {
    add(sum, number);
  }
  add(sum, mean);
  add(sum, std);
  return sum.digest();
}

}  // namespace ibid
