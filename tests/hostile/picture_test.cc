// Pictures that try to eat a server's memory or time: small files of large pictures, texts and profiles that inflate,
// scans without end, headers that lie. Each is refused or decoded within a second of the processor and 64 MiB.
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

#include "hostile/limits.h"
#include "image/decode.h"
#include "source_paths.h"

namespace ibid {
namespace {

// What a server with little room would allow.
constexpr DecodeLimits kSmall = {.max_pixels = 4'000'000, .max_memory = 32 << 20};

std::string golden(const std::string& name) {
  std::ifstream in(source_dir() + "/tests/golden/pictures/" + name, std::ios::binary);
  EXPECT_TRUE(in.good()) << name;
  return {std::istreambuf_iterator<char>(in), {}};
}

std::span<const std::byte> as_file(std::string_view bytes) { return std::as_bytes(std::span(bytes)); }

// `sentence` empty: it decodes.
void expect(const std::string& name, const std::string& bytes, const std::string& sentence,
            const DecodeLimits& limits = kSmall) {
  Cost cost;
  const Result<Picture> picture = decode_picture(as_file(bytes), limits);
  const Result<PictureSize> size = read_picture_size(as_file(bytes), limits);
  cost.expect_small(name);
  if (sentence.empty()) {
    EXPECT_TRUE(picture.ok()) << name << ": " << picture.error().message;
    return;
  }
  ASSERT_FALSE(picture.ok()) << name;
  expect_sentence(picture.error(), name);
  EXPECT_NE(picture.error().message.find(sentence), std::string::npos) << name << ": " << picture.error().message;
}

void big_endian(std::string& bytes, size_t at, size_t n, uint64_t value) {
  for (size_t i = 0; i < n; ++i) bytes[at + i] = static_cast<char>(value >> (8 * (n - 1 - i)));
}

TEST(HostilePictures, LargePicturesInSmallFilesAreRefusedByTheirHeaders) {
  for (const char* name : {"wide.png", "wide.webp"})
    expect(name, golden(std::string("bombs/") + name), "7900 x 8000 pixels");
  expect("wide.jpg", golden("bombs/wide.jpg"), "3000 x 2000 pixels");
  // Progressive: 2 bytes a coefficient besides the pixels.
  expect("wide.jpg in little memory", golden("bombs/wide.jpg"), "bytes to decode",
         {.max_pixels = 8'000'000, .max_memory = 24 << 20});
  // As is a lossless WebP, of 8 bytes a pixel.
  expect("wide.webp in little memory", golden("bombs/wide.webp"), "bytes to decode", {.max_memory = 200 << 20});
}

TEST(HostilePictures, TextsAndProfilesAreNotInflated) {
  expect("text.png", golden("bombs/text.png"), "");
  expect("profile.png", golden("bombs/profile.png"), "");
}

TEST(HostilePictures, ManyChunksAndMarkersTakeLittle) {
  std::string png = golden("files/rgb8.png");
  const std::string chunk("\0\0\0\0tEXt\x12\x34\x56\x78", 12);
  png.insert(33, repeated(chunk, 1'000'000));
  expect("a million empty chunks", png, "");

  std::string jpeg = golden("files/420.jpg");
  std::string marker("\xff\xe1\0\x02", 4);
  jpeg.insert(2, repeated(marker, 1'000'000));
  expect("a million empty markers", jpeg, "");
  std::string exif(60'000, 'x');
  exif.replace(0, 10,
               std::string("\xff\xe1\xea\x5e"
                           "Exif\0\0",
                           10));
  jpeg = golden("files/420.jpg");
  jpeg.insert(2, repeated(exif, 300));
  expect("18 MB of EXIF", jpeg, "");

  std::string webp = golden("files/exif1.webp") + repeated(std::string("ABCD\0\0\0\0", 8), 300'000);
  const size_t n = webp.size() - 8;
  for (size_t i = 0; i < 4; ++i) webp[4 + i] = static_cast<char>(n >> (8 * i));
  expect("300,000 unknown chunks", webp, "");
}

// The second scan of a progressive JPEG again and again.
TEST(HostilePictures, ScansWithoutEndAreRefused) {
  std::string jpeg = golden("files/420_progressive.jpg");
  const std::string mark("\xff\xda", 2);
  const size_t first = jpeg.find(mark), second = jpeg.find(mark, first + 2), third = jpeg.find(mark, second + 2);
  ASSERT_NE(third, std::string::npos);
  jpeg.insert(third, repeated(jpeg.substr(second, third - second), 20'000));
  expect("20,000 scans", jpeg, "more than 100 scans");
}

TEST(HostilePictures, HeadersThatLieAreRefused) {
  std::string jpeg = golden("files/420.jpg");
  const size_t frame = jpeg.find(std::string("\xff\xc0", 2));
  ASSERT_NE(frame, std::string::npos);
  big_endian(jpeg, frame + 5, 2, 2000);
  big_endian(jpeg, frame + 7, 2, 2000);
  expect("a JPEG of 45 x 35 that claims 2000 x 2000", jpeg, "cut off");
  big_endian(jpeg, frame + 5, 2, 65'535);
  big_endian(jpeg, frame + 7, 2, 65'535);
  expect("a JPEG that claims 65535 x 65535", jpeg, "damaged");
  big_endian(jpeg, frame + 5, 2, 0);
  expect("a JPEG without a height", jpeg, "damaged");

  std::string webp = golden("files/lossless.webp");
  const size_t sides = webp.find("VP8L") + 9;
  for (size_t i = 0; i < 3; ++i) webp[sides + i] = '\xff';
  expect("a WebP that claims 16384 x 16384", webp, "pixels");

  std::string canvas = golden("files/frame.webp");
  const size_t size = canvas.find("VP8X") + 12;
  for (size_t i = 0; i < 6; ++i) canvas[size + i] = '\xff';
  expect("a WebP of 2^24 x 2^24", canvas, "damaged");
  std::string place = golden("files/frame.webp");
  const size_t frame_place = place.find("ANMF") + 8;
  for (size_t i = 0; i < 6; ++i) place[frame_place + i] = '\xff';
  expect("a frame outside its canvas", place, "damaged");
}

}  // namespace
}  // namespace ibid
