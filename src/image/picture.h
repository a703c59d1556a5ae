// Picture: pixels in memory, as decoders give them and preprocessing takes them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace ibid {

struct PictureSize {
  int32_t width = 0;  // in pixels, as is height
  int32_t height = 0;
  int64_t n_pixels() const { return int64_t{width} * height; }
  bool operator==(const PictureSize&) const = default;
};

struct Picture {
  PictureSize size;
  std::vector<uint8_t> rgb;  // [height, width, 3], the top row first
  const uint8_t* row(int32_t y) const { return rgb.data() + static_cast<size_t>(y) * row_bytes(); }
  uint8_t* row(int32_t y) { return rgb.data() + static_cast<size_t>(y) * row_bytes(); }
  size_t row_bytes() const { return static_cast<size_t>(size.width) * 3; }
};

}  // namespace ibid
