#include "cli/terminal/terminal_markdown.h"

#include <gtest/gtest.h>

#include <random>
#include <utility>
#include <vector>

namespace ibid::cli {
namespace {

// With the colours spelled: <b>old, <i>talic, <c>ode, <d>im, </>.
std::string spelled(std::string text) {
  const std::pair<std::string, std::string> names[] = {
      {"\x1b[0m", "</>"}, {"\x1b[1m", "<b>"}, {"\x1b[3m", "<i>"}, {"\x1b[36m", "<c>"}, {"\x1b[2m", "<d>"}};
  for (const auto& [code, name] : names) {
    for (size_t at = 0; (at = text.find(code, at)) != std::string::npos;) text.replace(at, code.size(), name);
  }
  return text;
}

std::string shown(std::string_view text) {
  TerminalMarkdown markdown;
  std::string out;
  markdown.push(text, out);
  markdown.finish(out);
  return spelled(out);
}

TEST(TerminalMarkdown, ShowsWhatIsMeant) {
  EXPECT_EQ(shown("a **b** *c* _d_ `e*` f\n"), "a </><b>b</> </><i>c</> </><i>d</> </><c>e*</> f\n");
  EXPECT_EQ(shown("## Head\ntext"), "</><b>Head</>\ntext");
  EXPECT_EQ(shown("- a\n  * b\n1. c"), "• a\n  • b\n1. c");
  EXPECT_EQ(shown("> a"), "<d>│</> a");
  EXPECT_EQ(shown("---\n"), "<d>────────</>\n");
  EXPECT_EQ(shown("```py\nx = *y*\n```\n*z*"), "<d>py</>\n<c>x = *y*</>\n\n</><i>z</>");
}

TEST(TerminalMarkdown, LeavesWhatIsNone) {
  for (const char* text : {"2 * 3 ** 4", "snake_case_name", "a - b", "#1", "\\", "--flag", "1984. It", "*", "  "})
    EXPECT_EQ(shown(text), text) << text;
  EXPECT_EQ(shown("\\*a\\* \\n"), "*a* \\n");
}

TEST(TerminalMarkdown, ControlCharactersReachNoTerminal) {
  EXPECT_EQ(shown("a\x1b[2Jb\x07\x7f\r"), "a\uFFFD[2Jb\uFFFD\uFFFD\uFFFD");
  EXPECT_EQ(shown("\xC2\x9B"
                  "2J \xC2\xA9"),
            "\uFFFD2J \u00A9");
  EXPECT_EQ(shown("```\n\x1b]0;x\x07\n```"), "</>\n<c>\uFFFD]0;x\uFFFD</>\n");
  EXPECT_EQ(harmless("\x1b[1m\n\xC2\x9B\xC3\xA9"), "\uFFFD[1m\n\uFFFD\u00E9");
}

// However the text comes in pieces, the same bytes reach the terminal; and the styles end with their line.
TEST(TerminalMarkdown, PiecesChangeNothing) {
  std::mt19937 random(1);
  const std::string_view marks = "**__``#->~ \n\n\\ab1.\x1b\xC2\x9B\xA9";
  for (int round = 0; round < 3000; ++round) {
    std::string text;
    for (int i = 0, n = static_cast<int>(random() % 60); i < n; ++i) text += marks[random() % marks.size()];
    TerminalMarkdown whole, pieces;
    std::string at_once, by_and_by;
    whole.push(text, at_once);
    whole.finish(at_once);
    for (size_t i = 0; i < text.size();) {
      const size_t n = 1 + random() % 3;
      pieces.push(std::string_view(text).substr(i, n), by_and_by);
      i += n;
    }
    pieces.finish(by_and_by);
    ASSERT_EQ(at_once, by_and_by) << text;
    const size_t last = at_once.rfind("\x1b[");
    ASSERT_TRUE(last == std::string::npos || at_once.compare(last, 4, "\x1b[0m") == 0) << spelled(at_once);
    size_t n_controls = 0;
    for (const char c : at_once)
      n_controls += (static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\x1b') ? 1 : 0;
    ASSERT_EQ(n_controls, 0U);
  }
}

}  // namespace
}  // namespace ibid::cli
