#include "base/quoted.h"

#include <gtest/gtest.h>

#include "base/utf8.h"

namespace ibid {
namespace {

TEST(Quoted, KeepsOneLineOfWhatCanBeRead) {
  EXPECT_EQ(in_quotes("blk.0.attn_q.weight"), "\"blk.0.attn_q.weight\"");
  EXPECT_EQ(in_quotes("né \xE2\x96\x81 日本"), "\"né \xE2\x96\x81 日本\"");
  EXPECT_EQ(in_quotes("a\nb\tc\x01\x7F"), "\"a\\nb\\tc\\x01\\x7F\"");
  EXPECT_EQ(in_quotes("C:\\a \"b\""), "\"C:\\\\a \\\"b\\\"\"");
  EXPECT_EQ(shown("\xC2\x9B"
                  "31m"),
            "\\xC2\\x9B31m")
      << "a control sequence of a terminal";
}

TEST(Quoted, IsValidUtf8WhateverTheBytesAreAndWhereverItIsCut) {
  EXPECT_EQ(in_quotes("caf\xE9"), "\"caf\\xE9\"");
  EXPECT_EQ(in_quotes("ab\xF0\x9F\x98"), "\"ab\\xF0\\x9F\\x98\"");
  const std::string text = "a\xC3\xA9\xF0\x9F\x98\x80\xED\xA0\x80";
  for (size_t most = 0; most <= text.size(); ++most) {
    EXPECT_TRUE(utf8::is_valid(shown(text, most))) << most;
    EXPECT_EQ(shown(text, most).ends_with("..."), most < text.size()) << most;
  }
  EXPECT_EQ(shown(text, 3), "aé...");
  EXPECT_EQ(shown(text, 6), "aé...");
  EXPECT_EQ(shown(text, 7), "aé😀...");
}

TEST(Quoted, EndsAfterEightyBytes) {
  EXPECT_EQ(in_quotes(std::string(80, 'x')), '"' + std::string(80, 'x') + '"');
  EXPECT_EQ(in_quotes(std::string(81, 'x')), '"' + std::string(80, 'x') + "...\"");
}

}  // namespace
}  // namespace ibid
