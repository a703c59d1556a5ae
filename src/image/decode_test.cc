#include "image/decode.h"

#include <string>
#include <utility>

#include "image/golden_pictures.h"

namespace ibid {
namespace {

Result<Picture> decoded(std::string_view bytes, const DecodeLimits& limits = {}) {
  return decode_picture(as_file(bytes), limits);
}

std::string golden_file(const std::string& name) { return file_bytes(golden_pictures("files/" + name)); }

std::string error_of(std::string_view bytes, const DecodeLimits& limits = {}) {
  const Result<Picture> picture = decoded(bytes, limits);
  return picture.ok() ? "" : picture.error().message;
}

// CTest runs this one also without the vector code of libjpeg-turbo (cmake/tests.cmake).
TEST(Decode, GivesThePixelsOfPillow) {
  const auto lines = golden_lines("decoded.txt");
  ASSERT_GE(lines.size(), 80u);
  for (const std::vector<std::string>& line : lines) {
    const std::string bytes = golden_file(line[0]);
    const PictureSize size = {std::stoi(line[1]), std::stoi(line[2])};
    const Result<Picture> picture = decoded(bytes);
    ASSERT_TRUE(picture.ok()) << line[0] << ": " << picture.error().message;
    EXPECT_EQ(picture->size, size) << line[0];
    EXPECT_EQ(hex_of(*picture), line[3]) << line[0];
    const Result<PictureSize> announced = read_picture_size(as_file(bytes));
    ASSERT_TRUE(announced.ok()) << line[0];
    EXPECT_EQ(*announced, size) << line[0];
  }
}

TEST(Decode, OtherFormatsAreRefusedByName) {
  const std::pair<std::string, std::string> cases[] = {{"GIF89a", "GIF"},
                                                       {"BM\x10", "BMP"},
                                                       {std::string("II*\0", 4), "TIFF"},
                                                       {std::string("\0\0\0\x1c", 4) + "ftypavif", "AVIF"},
                                                       {std::string("\0\0\0\x1c", 4) + "ftypheic", "HEIC"},
                                                       {"<svg xmlns", "SVG"},
                                                       {"%PDF-1.7", "PDF"},
                                                       {"hello", "not known"},
                                                       {"RIFF\x10WAVE", "not known"},
                                                       {"", "no bytes"}};
  for (const auto& [bytes, name] : cases) {
    EXPECT_NE(error_of(bytes).find(name), std::string::npos) << name << ": " << error_of(bytes);
    EXPECT_EQ(read_picture_size(as_file(bytes)).ok(), false) << name;
  }
}

// Headers are read with the sizes that they claim, and refused before pixels are allocated.
std::string png_of(uint32_t width, uint32_t height) {
  std::string bytes = golden_file("rgb8.png");
  for (int i = 0; i < 4; ++i) {
    bytes[static_cast<size_t>(16 + i)] = static_cast<char>(width >> (24 - 8 * i));
    bytes[static_cast<size_t>(20 + i)] = static_cast<char>(height >> (24 - 8 * i));
  }
  uint32_t sum = 0xFFFFFFFF;
  for (size_t i = 12; i < 29; ++i) {
    sum ^= static_cast<uint8_t>(bytes[i]);
    for (int k = 0; k < 8; ++k) sum = sum >> 1 ^ (sum & 1 ? 0xEDB88320 : 0);
  }
  sum = ~sum;
  for (size_t i = 0; i < 4; ++i) bytes[29 + i] = static_cast<char>(sum >> (24 - 8 * i));
  return bytes;
}

std::string jpeg_of(uint16_t width, uint16_t height, const std::string& name = "420.jpg") {
  std::string bytes = golden_file(name);
  for (size_t i = 2; i + 9 < bytes.size(); ++i) {
    if (bytes[i] != '\xff' || (bytes[i + 1] != '\xc0' && bytes[i + 1] != '\xc2')) continue;
    bytes[i + 5] = static_cast<char>(height >> 8);
    bytes[i + 6] = static_cast<char>(height);
    bytes[i + 7] = static_cast<char>(width >> 8);
    bytes[i + 8] = static_cast<char>(width);
    return bytes;
  }
  ADD_FAILURE() << name;
  return bytes;
}

TEST(Decode, SizesAreLimited) {
  EXPECT_NE(error_of(png_of(8000, 8001)).find("8000 x 8001 pixels; 64000000 in all are the most"), std::string::npos)
      << error_of(png_of(8000, 8001));
  EXPECT_NE(error_of(png_of(65536, 1)).find("a side has at most 65535"), std::string::npos);
  EXPECT_NE(error_of(png_of(65535, 65535)).find("in all are the most"), std::string::npos);
  EXPECT_NE(error_of(png_of(0x7FFFFFFF, 0x7FFFFFFF)), "");
  EXPECT_NE(error_of(png_of(0x80000000, 1)).find("damaged"), std::string::npos);
  EXPECT_NE(error_of(png_of(0, 5)).find("damaged"), std::string::npos);
  EXPECT_NE(error_of(jpeg_of(65535, 65535)).find("damaged"), std::string::npos) << "65,500 are libjpeg's most";
  EXPECT_NE(error_of(jpeg_of(65500, 65500)).find("in all are the most"), std::string::npos);
  EXPECT_NE(error_of(golden_file("rgb8.png"), {.max_bytes = 100}).find("100 are the most"), std::string::npos);
  EXPECT_NE(error_of(golden_file("rgb8.png"), {.max_pixels = 23 * 17 - 1}), "");
  EXPECT_EQ(error_of(golden_file("rgb8.png"), {.max_pixels = 23 * 17}), "");
  // A progressive JPEG is held whole as coefficients, a WebP in four bytes a pixel.
  const DecodeLimits small = {.max_memory = 3 * 3000 * 3000 + 8'000'000};
  EXPECT_NE(error_of(jpeg_of(3000, 3000, "420_progressive.jpg"), small).find("bytes to decode"), std::string::npos);
  EXPECT_EQ(error_of(jpeg_of(3000, 3000), small).find("bytes to decode"), std::string::npos);
}

TEST(Decode, AHeaderThatLiesIsAnError) {
  EXPECT_NE(error_of(png_of(23, 18)), "") << "more rows than there are";
  EXPECT_NE(error_of(jpeg_of(45, 8000)), "");
}

TEST(Decode, EveryCutIsAnError) {
  for (const char* name : {"rgb8.png", "grey16_interlaced.png", "420.jpg", "420_progressive.jpg", "inks.jpg",
                           "lossy.webp", "lossless.webp", "animated.webp", "frame.webp"}) {
    const std::string whole = golden_file(name);
    ASSERT_EQ(error_of(whole), "") << name;
    // What follows the last pixel of a PNG, checksums and the last chunk, is not read.
    const size_t n_needed = whole.size() - (std::string_view(name).ends_with("png") ? 24 : 0);
    for (size_t n = 0; n + 1 < n_needed; ++n) {
      ASSERT_NE(error_of(std::string(whole, 0, n)), "") << name << " cut to " << n << " bytes";
    }
  }
}

TEST(Decode, ScansAreLimited) {
  const std::string bytes = golden_file("420_progressive.jpg");
  EXPECT_EQ(error_of(bytes, {.max_scans = 10}), "") << "libjpeg writes ten";
  EXPECT_NE(error_of(bytes, {.max_scans = 9}).find("more than 9 scans"), std::string::npos)
      << error_of(bytes, {.max_scans = 9});
}

TEST(Decode, WhatIsNotOfThePictureDoesNotCount) {
  std::string damaged = golden_file("texts.png");
  const size_t at = damaged.find("zTXt");
  ASSERT_NE(at, std::string::npos);
  damaged[at + 12] = static_cast<char>(damaged[at + 12] ^ 0x55);
  EXPECT_EQ(error_of(damaged), "") << "compressed texts are not inflated";
  std::string critical = golden_file("texts.png");
  critical[critical.find("zTXt")] = 'Z';
  EXPECT_NE(error_of(critical).find("damaged"), std::string::npos) << "a chunk that must be known";
}

TEST(Decode, ADamagedOrientationIsNone) {
  const Picture upright = decoded(golden_file("exif1.jpg")).value();
  const std::string turned = golden_file("exif6.jpg");
  const size_t tag = turned.find("Exif");
  ASSERT_NE(tag, std::string::npos);
  for (size_t i = 6; i < 24; ++i) {  // the directory's place, its length, the entry's type and count
    std::string changed = turned;
    changed[tag + i] = '\xee';
    const Result<Picture> picture = decoded(changed);
    ASSERT_TRUE(picture.ok()) << i;
    EXPECT_TRUE(picture->size == upright.size ||
                picture->size == PictureSize({upright.size.height, upright.size.width}));
  }
}

}  // namespace
}  // namespace ibid
