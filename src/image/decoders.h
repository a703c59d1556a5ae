// The decoder of each format, for decode.cc: a header, then pixels as they are stored, before they are turned.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/result.h"

namespace ibid {

// What a header contains.
struct StoredPicture {
  int64_t width = 0;  // at least 1, as is height
  int64_t height = 0;
  int orientation = 1;         // EXIF's, 1 to 8
  uint64_t decoder_bytes = 0;  // what the decoder holds while it runs, at most, besides the pixels
};

Result<StoredPicture> read_png_header(std::span<const std::byte> bytes);
Result<StoredPicture> read_jpeg_header(std::span<const std::byte> bytes);
Result<StoredPicture> read_webp_header(std::span<const std::byte> bytes);

// Fill `rgb`, [height, width, 3] of the header of the same bytes, zeros before.
Status decode_png(std::span<const std::byte> bytes, std::span<uint8_t> rgb);
Status decode_jpeg(std::span<const std::byte> bytes, int max_scans, std::span<uint8_t> rgb);
Status decode_webp(std::span<const std::byte> bytes, std::span<uint8_t> rgb);

}  // namespace ibid
