// For tests: the pictures that tools/make_golden_images.py makes, and its tables in tests/golden/pictures.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "base/sha256.h"
#include "image/picture.h"
#include "source_paths.h"

namespace ibid {

inline std::string golden_pictures(const std::string& name) { return source_dir() + "/tests/golden/pictures/" + name; }

inline std::string file_bytes(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  EXPECT_TRUE(in.good()) << path;
  return {std::istreambuf_iterator<char>(in), {}};
}

inline std::span<const std::byte> as_file(std::string_view bytes) { return std::as_bytes(std::span(bytes)); }

// The words of each line of a table.
inline std::vector<std::vector<std::string>> golden_lines(const std::string& name) {
  std::ifstream in(golden_pictures(name));
  EXPECT_TRUE(in.good()) << name;
  std::vector<std::vector<std::string>> out;
  for (std::string line, word; std::getline(in, line);) {
    std::istringstream words(line);
    out.emplace_back();
    while (words >> word) out.back().push_back(word);
  }
  return out;
}

// The tool's formula(): slopes, stripes and noise.
inline Picture formula(PictureSize size) {
  Picture out{size, {}};
  out.rgb.reserve(static_cast<size_t>(size.n_pixels()) * 3);
  for (uint32_t y = 0; y < static_cast<uint32_t>(size.height); ++y) {
    for (uint32_t x = 0; x < static_cast<uint32_t>(size.width); ++x) {
      for (uint32_t c = 0; c < 3; ++c) {
        uint32_t mixed = x * 2654435761u + y * 2246822519u + c * 3266489917u;
        mixed = (mixed ^ (mixed >> 15)) * 2246822519u;
        const uint32_t slope = (x * 3 + y * 2 + c * 40) & 127, stripe = (x / 5 + y / 7) % 3 == 0 ? 64 : 0;
        out.rgb.push_back(static_cast<uint8_t>((mixed >> 24 & 63) + slope + stripe));
      }
    }
  }
  return out;
}

inline std::string hex_of(const void* data, size_t n_bytes) {
  return sha256_hex({static_cast<const char*>(data), n_bytes});
}
inline std::string hex_of(const Picture& picture) { return hex_of(picture.rgb.data(), picture.rgb.size()); }

}  // namespace ibid
