#include "cli/terminal/grapheme.h"

#include <gtest/gtest.h>

#include "cli/terminal/line_wrap.h"

namespace ibid::cli {
namespace {

TEST(Grapheme, IsWhatAReaderTakesForOneCharacter) {
  use_utf8();
  const struct {
    const wchar_t* text;
    size_t n;
  } clusters[] = {
      {L"a", 1},
      {L"e\u0301", 2},
      {L"\U0001F469\u200D\U0001F469\u200D\U0001F467\u200D\U0001F466", 7},  // a family
      {L"\U0001F44D\U0001F3FD", 2},                                        // a thumb with its skin
      {L"\u2764\uFE0F", 2},                                                // a heart as emoji
      {L"\U0001F1E9\U0001F1EA", 2},                                        // a flag
      {L"\u1112\u1161\u11AB", 3},                                          // a syllable in letters
      {L"\u65E5", 1},
  };
  for (const auto& c : clusters) {
    const std::wstring text = std::wstring(L"x") + c.text, before = std::wstring(c.text) + L"x";
    EXPECT_EQ(last_cluster(text), c.n);
    EXPECT_EQ(first_cluster(before), c.n);
    EXPECT_EQ(has_joined(text), c.n > 1);
  }
  const std::wstring flags = L"\U0001F1E9\U0001F1EA\U0001F1EB\U0001F1F7";
  EXPECT_EQ(last_cluster(flags), 2u);
  EXPECT_EQ(first_cluster(flags), 2u);
  EXPECT_EQ(last_cluster(L""), 0u);
  EXPECT_EQ(first_cluster(L""), 0u);
  EXPECT_EQ(last_cluster(L"\n\u0301"), 1u) << "nothing joins a line's end";
}

}  // namespace
}  // namespace ibid::cli
