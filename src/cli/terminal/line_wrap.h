// Text that is broken at blanks by the width of a terminal's window.
#pragma once

#include <string>
#include <string_view>

namespace ibid::cli {

// Columns of this descriptor's terminal; 0 where that is no terminal, or it does not report them.
int columns_of(int fd);
// Columns that a character takes; -1 becomes 1. Beyond ASCII it needs use_utf8() once in the process.
int columns_of(char32_t character);
void use_utf8();

// `text` of whole lines, each broken at blanks. What goes on is indented like the second column of its line, where two
// blanks or more begin one, else like the line itself. Width 0: as it is.
std::string wrapped(std::string_view text, int width);

// LineWrap: a growing text, broken at blanks as it comes. A word is written as soon as it comes, and moved to the next
// line when it turns out to be too long for its own; where the cursor cannot move, it is held back until it ends. Lines
// of lists and quotes go on under their text. A word that is longer than a whole line is left to the terminal, so that
// it can be copied. Styles (ESC [ .. m) take no room and are kept.
class LineWrap {
 public:
  explicit LineWrap(bool can_move = true) : can_move_(can_move) {}
  void set_width(int columns) { width_ = columns; }  // 0: nothing is broken
  // `wraps`: false for code, which is left as it is.
  void push(std::string_view text, bool wraps, std::string& out);
  void finish(std::string& out);  // what was held back

 private:
  void step(std::string_view character, std::string& out);
  void step_style(char c, std::string& out);
  void blank(char c, std::string& out);
  void begin_line();
  void break_line(std::string& out);
  void end_word(std::string& out);
  void lead(std::string_view character);

  bool can_move_;
  int width_ = 0;
  int column_ = 0;       // of what was written
  std::string partial_;  // bytes of a character, or of a style, that are not all there
  std::string word_;     // the word that grows, with its styles
  int word_column_ = 0;  // where it begins
  int word_width_ = 0;
  bool is_long_ = false;  // it goes over a whole line
  bool has_styles_ = false;
  std::string style_, word_style_;  // in force, and where the word began
  bool is_lead_ = true;             // what was seen of the line may be the mark of a list or quote
  std::string lead_;
  std::string hang_;  // what a line that goes on begins with
  int hang_width_ = 0;
};

}  // namespace ibid::cli
