#include "base/utf8.h"

#include <gtest/gtest.h>

namespace ibid::utf8 {
namespace {

TEST(Utf8, OnlyUnfinishedPrefixesCanBecomeACodePoint) {
  for (uint32_t c : {0x80u, 0x7FFu, 0x800u, 0xFFFu, 0xD7FFu, 0xE000u, 0xFFFFu, 0x10000u, 0xFFFFFu, 0x10FFFFu}) {
    std::string text;
    append(c, text);
    EXPECT_TRUE(is_one(text)) << c;
    EXPECT_FALSE(is_unfinished(text)) << c;
    for (size_t n = 1; n < text.size(); ++n) EXPECT_TRUE(is_unfinished(text.substr(0, n))) << c << " cut at " << n;
  }
  for (const char* text : {"", "a", "\x80", "\xC0", "\xC1", "\xF5", "\xFF", "\xE0\x80", "\xED\xA0", "\xF0\x80",
                           "\xF4\x90", "\xE2\x96z", "\xC3\xA9\xC3"})
    EXPECT_FALSE(is_unfinished(text)) << text;
}

TEST(Utf8, AValidPrefixEndsWhereTheFirstInvalidBytesBegin) {
  EXPECT_EQ(valid_prefix(""), 0u);
  EXPECT_EQ(valid_prefix("0123456789 \xC3\xA9\xE2\x96\x81"), 16u);
  EXPECT_EQ(valid_prefix("0123456789 \xC3\xA9\xE2\x96"), 13u);
  EXPECT_EQ(valid_prefix("\xED\xA0\x80"), 0u);
}

TEST(Utf8, CountsCodePoints) { EXPECT_EQ(count("aé日😀"), 4u); }

}  // namespace
}  // namespace ibid::utf8
