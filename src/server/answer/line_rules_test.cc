#include "server/answer/line_rules.h"

#include <gtest/gtest.h>

namespace ibid {
namespace {

// What is returned of the text, cut at each place: always the same.
std::string told(int32_t n_indent, const std::string& text) {
  std::string first;
  for (size_t cut = 0; cut <= text.size(); ++cut) {
    LineRules rules(n_indent, 0);
    std::string out;
    const bool ends = rules.push(text.substr(0, cut), 0, out) || rules.push(text.substr(cut), 0, out);
    if (!ends) rules.finish(out);
    out += ends ? "|" : "";
    if (cut == 0) first = out;
    EXPECT_EQ(out, first) << cut;
  }
  return first;
}

TEST(LineRules, EndBeforeALineThatIsIndentedLess) {
  EXPECT_EQ(told(0, "a\nb\n c"), "a\nb\n c");
  EXPECT_EQ(told(2, "a"), "a");
  EXPECT_EQ(told(2, "a\n  b\n\t c\n   d"), "a\n  b\n\t c\n   d");
  EXPECT_EQ(told(2, "a\n  b\n c\n"), "a\n  b\n|");
  EXPECT_EQ(told(2, "a\n}"), "a\n|");
  EXPECT_EQ(told(2, "a\n\n \n  b\n"), "a\n\n \n  b\n") << "empty lines end nothing";
  EXPECT_EQ(told(2, "a\n "), "a\n ") << "what is held back is told at the end";
  EXPECT_EQ(told(4, "  a\n  b"), "  a\n|") << "the first line goes on from the prompt's";
}

TEST(LineRules, EndWithTheFirstLineAfterTheTime) {
  LineRules rules(0, 1.0);
  std::string out;
  EXPECT_FALSE(rules.push("a\nb", 0.5, out));
  EXPECT_FALSE(rules.push("c\n", 1.0, out));
  EXPECT_FALSE(rules.push("d", 1.5, out));
  EXPECT_TRUE(rules.push("e\nf", 1.5, out));
  EXPECT_EQ(out, "a\nbc\nde\n");
}

}  // namespace
}  // namespace ibid
