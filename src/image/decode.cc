#include "image/decode.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>

#include "image/decoders.h"
#include "image/orientation.h"

namespace ibid {
namespace {

enum class Format { kPng, kJpeg, kWebp };

bool has(std::span<const std::byte> bytes, size_t at, std::string_view what) {
  return bytes.size() >= at + what.size() && std::memcmp(bytes.data() + at, what.data(), what.size()) == 0;
}

// By the first bytes; the type that a client gives does not count.
Result<Format> format_of(std::span<const std::byte> bytes) {
  if (bytes.empty()) return invalid("The picture has no bytes.");
  if (has(bytes, 0, "\x89PNG\r\n\x1a\n")) return Format::kPng;
  if (has(bytes, 0, "\xff\xd8\xff")) return Format::kJpeg;
  if (has(bytes, 0, "RIFF") && has(bytes, 8, "WEBP")) return Format::kWebp;
  struct Known {
    size_t at;
    std::string_view mark;
    const char* name;
  };
  static constexpr std::array kKnown = {
      Known{0, "GIF8", "GIF"},        Known{0, "BM", "BMP"},         Known{0, {"II*\0", 4}, "TIFF"},
      Known{0, {"MM\0*", 4}, "TIFF"}, Known{4, "ftypavif", "AVIF"},  Known{4, "ftypheic", "HEIC"},
      Known{4, "ftypmif1", "HEIF"},   Known{0, "<svg", "SVG"},       Known{0, "<?xml", "SVG"},
      Known{0, "%PDF", "PDF"},        Known{4, "jP  ", "JPEG 2000"}, Known{0, "\xff\x0a", "JPEG XL"},
      Known{4, "JXL ", "JPEG XL"},
  };
  for (const Known& known : kKnown) {
    if (has(bytes, known.at, known.mark)) {
      return unsupported("The picture is a file in the format " + std::string(known.name) +
                         "; PNG, JPEG and WebP are read.");
    }
  }
  return unsupported("The picture's format is not known; PNG, JPEG and WebP are read.");
}

Result<StoredPicture> read_header(Format format, std::span<const std::byte> bytes) {
  switch (format) {
    case Format::kPng:
      return read_png_header(bytes);
    case Format::kJpeg:
      return read_jpeg_header(bytes);
    case Format::kWebp:
      return read_webp_header(bytes);
  }
  return invalid("The picture's format is not known.");
}

// The header of a picture that is within the limits.
Result<StoredPicture> checked_header(Format format, std::span<const std::byte> bytes, const DecodeLimits& limits) {
  if (bytes.size() > limits.max_bytes) {
    return invalid("The picture has " + std::to_string(bytes.size()) + " bytes; " + std::to_string(limits.max_bytes) +
                   " are the most.");
  }
  ASSIGN_OR_RETURN(StoredPicture header, read_header(format, bytes));
  const std::string sides = std::to_string(header.width) + " x " + std::to_string(header.height);
  if (header.width > limits.max_side || header.height > limits.max_side) {
    return invalid("The picture is " + sides + " pixels; a side has at most " + std::to_string(limits.max_side) + ".");
  }
  if (header.width * header.height > limits.max_pixels) {
    return invalid("The picture is " + sides + " pixels; " + std::to_string(limits.max_pixels) +
                   " in all are the most.");
  }
  const auto n_pixels = static_cast<uint64_t>(header.width * header.height);
  const uint64_t n_turned = header.orientation == 1 ? 0 : 3 * n_pixels;
  if (3 * n_pixels + std::max(n_turned, header.decoder_bytes) > limits.max_memory) {
    return invalid("The picture of " + sides + " pixels takes " +
                   std::to_string(3 * n_pixels + std::max(n_turned, header.decoder_bytes)) + " bytes to decode; " +
                   std::to_string(limits.max_memory) + " are the most.");
  }
  return header;
}

PictureSize stored_size(const StoredPicture& header) {
  return {static_cast<int32_t>(header.width), static_cast<int32_t>(header.height)};
}

}  // namespace

Result<PictureSize> read_picture_size(std::span<const std::byte> bytes, const DecodeLimits& limits) {
  ASSIGN_OR_RETURN(const Format format, format_of(bytes));
  ASSIGN_OR_RETURN(const StoredPicture header, checked_header(format, bytes, limits));
  const PictureSize size = stored_size(header);
  return turns_sides(header.orientation) ? PictureSize{size.height, size.width} : size;
}

Result<Picture> decode_picture(std::span<const std::byte> bytes, const DecodeLimits& limits) {
  ASSIGN_OR_RETURN(const Format format, format_of(bytes));
  ASSIGN_OR_RETURN(const StoredPicture header, checked_header(format, bytes, limits));
  Picture picture;
  picture.size = stored_size(header);
  picture.rgb.resize(static_cast<size_t>(picture.size.n_pixels()) * 3);
  switch (format) {
    case Format::kPng:
      TRY(decode_png(bytes, picture.rgb));
      break;
    case Format::kJpeg:
      TRY(decode_jpeg(bytes, limits.max_scans, picture.rgb));
      break;
    case Format::kWebp:
      TRY(decode_webp(bytes, picture.rgb));
      break;
  }
  return upright(std::move(picture), header.orientation);
}

}  // namespace ibid
