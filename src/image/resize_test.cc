#include "image/resize.h"

#include "image/golden_pictures.h"

namespace ibid {
namespace {

TEST(Resize, GivesThePixelsOfTorchvision) {
  const auto lines = golden_lines("resized.txt");
  ASSERT_GE(lines.size(), 24u);
  for (const std::vector<std::string>& line : lines) {
    const Filter filter = line[0] == "bilinear" ? Filter::kBilinear : Filter::kBicubic;
    const Picture from = formula({std::stoi(line[1]), std::stoi(line[2])});
    const Picture to = resize_picture(from, {std::stoi(line[3]), std::stoi(line[4])}, filter);
    EXPECT_EQ(hex_of(to), line[5]) << line[0] << " " << line[1] << " x " << line[2] << " to " << line[3] << " x "
                                   << line[4];
  }
}

TEST(Resize, OfOneColourStaysThatColour) {
  for (const int value : {0, 1, 127, 254, 255}) {
    const Picture flat{{40, 30}, std::vector<uint8_t>(40 * 30 * 3, static_cast<uint8_t>(value))};
    for (const Filter filter : {Filter::kBilinear, Filter::kBicubic}) {
      for (const PictureSize size : {PictureSize{1, 1}, PictureSize{39, 31}, PictureSize{300, 7}}) {
        const Picture out = resize_picture(flat, size, filter);
        EXPECT_EQ(out.rgb, std::vector<uint8_t>(out.rgb.size(), static_cast<uint8_t>(value)));
      }
    }
  }
}

TEST(Resize, OfAVeryLongPictureHoldsFewRows) {
  const Picture out = resize_picture(formula({2, 60'000}), {64, 3}, Filter::kBicubic);
  EXPECT_EQ(out.size, (PictureSize{64, 3}));
}

}  // namespace
}  // namespace ibid
