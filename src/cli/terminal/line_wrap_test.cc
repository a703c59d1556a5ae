#include "cli/terminal/line_wrap.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "cli/terminal/terminal_markdown.h"

namespace ibid::cli {
namespace {

// What a terminal of so many columns shows of ASCII, wide characters and what LineWrap writes; styles are dropped.
class Screen {
 public:
  explicit Screen(size_t width) : width_(width) {}
  void show(std::string_view text) {
    for (size_t i = 0; i < text.size();) {
      if (text[i] == '\x1b') {
        const size_t end = text.find_first_of("mCK", i);
        const int n = std::atoi(std::string(text.substr(i + 2, end - i - 2)).c_str());
        if (text[end] == 'C') column_ = std::min(column_ + static_cast<size_t>(n), width_ - 1);
        if (text[end] == 'K') rows_.back().resize(std::min(rows_.back().size(), column_));
        i = end + 1;
      } else if (text[i] == '\r') {
        column_ = 0, ++i;
      } else if (text[i] == '\n') {
        rows_.emplace_back(), column_ = 0, ++i;
      } else {
        put(text[i++]);
      }
    }
  }
  std::string text() const {
    std::string out;
    for (const std::string& row : rows_)
      out += (out.empty() ? "" : "\n") + row.substr(0, row.find_last_not_of(' ') + 1);
    return out;
  }

 private:
  void put(char c) {
    if (column_ == width_) rows_.emplace_back(), column_ = 0;
    std::string& row = rows_.back();
    row.resize(std::max(row.size(), column_ + 1), ' ');
    row[column_++] = c;
  }
  size_t width_, column_ = 0;
  std::vector<std::string> rows_ = {""};
};

std::string broken(std::string_view text, int width, bool can_move = true) {
  LineWrap wrap(can_move);
  wrap.set_width(width);
  std::string out;
  for (const char c : text) wrap.push({&c, 1}, true, out);
  wrap.finish(out);
  Screen screen(static_cast<size_t>(width));
  screen.show(out);
  return screen.text();
}

TEST(LineWrap, BreaksAtBlanks) {
  for (const bool can_move : {true, false}) {
    EXPECT_EQ(broken("the quick brown fox jumps", 10, can_move), "the quick\nbrown fox\njumps");
    EXPECT_EQ(broken("0123456789 0123456789", 10, can_move), "0123456789\n0123456789");
    EXPECT_EQ(broken("a\n\nb c", 10, can_move), "a\n\nb c");
    EXPECT_EQ(broken("go to https://example.org/a/b now", 10, can_move), "go to\nhttps://ex\nample.org/\na/b now");
  }
}

TEST(LineWrap, ListsAndQuotesGoOnUnderTheirText) {
  EXPECT_EQ(broken("- one two three", 10), "- one two\n  three");
  EXPECT_EQ(broken("  12. one two", 10), "  12. one\ntwo") << "no further than half the width";
  EXPECT_EQ(broken("10. one two three", 12), "10. one two\n    three");
  EXPECT_EQ(broken("    deep and deep and", 12), "    deep and\n    deep and");
}

TEST(LineWrap, CodeIsLeftAsItIs) {
  TerminalMarkdown markdown;
  markdown.set_width(10);
  std::string out;
  markdown.push("one two three\n```\nint main() { return 0; }\n```\nfour five six", out);
  markdown.finish(out);
  EXPECT_NE(out.find("int main() { return 0; }"), std::string::npos) << out;
  Screen screen(80);
  screen.show(out);
  EXPECT_EQ(screen.text().find("one two\nthree\n"), 0u) << screen.text();
  EXPECT_NE(screen.text().find("four five\nsix"), std::string::npos) << screen.text();
}

// Whatever the pieces, widths and styles: the words are those of the text, and no row is longer than the window.
TEST(LineWrap, LosesNothingAndNoRowIsTooLong) {
  std::mt19937 random(7);
  for (int round = 0; round < 2000; ++round) {
    std::string text, plain;
    const int n = static_cast<int>(random() % 60);
    for (int i = 0; i < n; ++i) {
      const char* pieces[] = {"a", "bc", "def", " ", " ", "\n", "\x1b[1m", "\x1b[0m", "- ", "1. "};
      const std::string piece = pieces[random() % 10];
      text += piece;
      if (piece[0] != '\x1b') plain += piece;
    }
    const int width = 4 + static_cast<int>(random() % 20);
    for (const bool can_move : {true, false}) {
      LineWrap wrap(can_move);
      wrap.set_width(width);
      std::string out;
      for (size_t at = 0; at < text.size();) {
        const size_t end = std::min(text.size(), at + 1 + random() % 5);
        wrap.push(std::string_view(text).substr(at, end - at), true, out);
        at = end;
      }
      wrap.finish(out);
      Screen screen(static_cast<size_t>(width));
      screen.show(out);
      const auto words = [](std::string of) {
        std::erase_if(of, [](char c) { return c == ' ' || c == '\n'; });
        return of;
      };
      ASSERT_EQ(words(screen.text()), words(plain)) << text << " in " << width;
    }
  }
}

TEST(Wrapped, ASecondColumnIsKept) {
  EXPECT_EQ(wrapped("-x        what it does and more\n", 20),
            "-x        what it\n          does and\n          more\n");
  EXPECT_EQ(wrapped("Short.\nA line that is longer\n", 12), "Short.\nA line that\nis longer\n");
  EXPECT_EQ(wrapped("as it is, whatever comes", 0), "as it is, whatever comes");
}

}  // namespace
}  // namespace ibid::cli
