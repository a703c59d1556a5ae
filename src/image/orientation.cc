#include "image/orientation.h"

#include <cstring>
#include <optional>
#include <string_view>
#include <utility>

namespace ibid {
namespace {

// Reads a TIFF structure of either byte order.
class Tiff {
 public:
  explicit Tiff(std::span<const std::byte> bytes) : bytes_(bytes) {
    if (bytes.size() < 8) return;
    const std::string_view mark(reinterpret_cast<const char*>(bytes.data()), 4);
    little_ = mark == std::string_view("II*\0", 4);
    valid_ = little_ || mark == std::string_view("MM\0*", 4);
  }

  // The number of the tag in the first directory; the last of several counts, as in Pillow.
  std::optional<uint32_t> number(uint32_t tag) const {
    if (!valid_) return std::nullopt;
    const size_t directory = at(4, 4);
    if (directory + 2 > bytes_.size()) return std::nullopt;
    std::optional<uint32_t> found;
    const size_t n_entries = at(directory, 2);
    for (size_t i = 0; i < n_entries; ++i) {
      const size_t entry = directory + 2 + 12 * i;
      if (entry + 12 > bytes_.size()) break;
      if (at(entry, 2) != tag || at(entry + 4, 4) != 1) continue;
      const uint32_t type = at(entry + 2, 2);
      const size_t n = type == 1 ? 1 : type == 3 ? 2 : type == 4 ? 4 : 0;  // BYTE, SHORT, LONG
      if (n > 0) found = at(entry + 8, n);
    }
    return found;
  }

 private:
  uint32_t at(size_t begin, size_t n) const {
    uint32_t value = 0;
    for (size_t i = 0; i < n; ++i) {
      value = value << 8 | static_cast<uint32_t>(bytes_[begin + (little_ ? n - 1 - i : i)]);
    }
    return value;
  }

  std::span<const std::byte> bytes_;
  bool little_ = false;
  bool valid_ = false;
};

// tiff:Orientation="N" or <tiff:Orientation>N.
std::optional<uint32_t> of_xmp(std::string_view xmp) {
  constexpr std::string_view kName = "tiff:Orientation";
  for (size_t i = xmp.find(kName); i != std::string_view::npos; i = xmp.find(kName, i + 1)) {
    std::string_view rest = xmp.substr(i + kName.size());
    if (rest.starts_with("=\"")) {
      rest.remove_prefix(2);
    } else if (rest.starts_with('>')) {
      rest.remove_prefix(1);
    } else {
      continue;
    }
    if (!rest.empty() && rest[0] >= '0' && rest[0] <= '9') return static_cast<uint32_t>(rest[0] - '0');
  }
  return std::nullopt;
}

}  // namespace

int orientation_of(std::span<const std::byte> exif, std::span<const std::byte> xmp) {
  constexpr std::string_view kPrefix("Exif\0\0", 6);
  while (exif.size() >= kPrefix.size() && std::memcmp(exif.data(), kPrefix.data(), kPrefix.size()) == 0) {
    exif = exif.subspan(kPrefix.size());
  }
  std::optional<uint32_t> found = Tiff(exif).number(0x0112);
  if (!found) found = of_xmp({reinterpret_cast<const char*>(xmp.data()), xmp.size()});
  return found && *found >= 1 && *found <= 8 ? static_cast<int>(*found) : 1;
}

Picture upright(Picture picture, int orientation) {
  if (orientation <= 1) return picture;
  Picture out;
  const int32_t w = picture.size.width, h = picture.size.height;
  out.size = turns_sides(orientation) ? PictureSize{h, w} : picture.size;
  out.rgb.resize(picture.rgb.size());
  // Where in the stored picture the pixel (x, y) of the upright one is.
  const bool from_right = orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8;
  const bool from_below = orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7;
  for (int32_t y = 0; y < out.size.height; ++y) {
    uint8_t* to = out.row(y);
    for (int32_t x = 0; x < out.size.width; ++x, to += 3) {
      const int32_t along = turns_sides(orientation) ? y : x, down = turns_sides(orientation) ? x : y;
      const uint8_t* from = picture.row(from_below ? h - 1 - down : down) + 3 * (from_right ? w - 1 - along : along);
      to[0] = from[0];
      to[1] = from[1];
      to[2] = from[2];
    }
  }
  return out;
}

}  // namespace ibid
