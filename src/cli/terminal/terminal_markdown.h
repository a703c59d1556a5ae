// TerminalMarkdown: a growing answer in Markdown to what a terminal shows: headings, bold, italic, code, lists, quotes,
// rules, broken at blanks by the window's width. A machine over bytes: what it writes for a text does not depend on the
// pieces in which that comes, and it holds back no more than a run of marks. What a model writes is no command to a
// terminal: control characters become U+FFFD.
#pragma once

#include <string>
#include <string_view>

#include "cli/terminal/line_wrap.h"

namespace ibid::cli {

// Without control characters but for line ends and tabs.
std::string harmless(std::string_view text);

class TerminalMarkdown {
 public:
  void set_width(int columns) { wrap_.set_width(columns); }  // of the window; 0: nothing is broken
  void push(std::string_view text, std::string& out);
  void finish(std::string& out);

 private:
  void take(char c, std::string& out);
  void step(char c, std::string& out);
  void step_start(char c, std::string& out);
  bool begin_block(std::string& out);
  void step_inline(char c, std::string& out);
  void end_run(char next, std::string& out);
  void end_line(std::string& out);
  void style(std::string& out) const;
  void put(char c, std::string& out);

  std::string start_;  // of a line, as far as its kind is open
  std::string run_;    // equal marks that have not been read
  std::string fence_;  // that will end the code; empty: none is open
  bool at_start_ = true;
  bool is_info_ = false;  // the rest of a line that opens a fence
  bool is_heading_ = false, is_bold_ = false, is_italic_ = false;
  size_t code_marks_ = 0;  // backticks that will end it
  bool is_escaped_ = false;
  bool is_c2_ = false;  // the first byte of what may be a control character
  char last_ = '\n';
  LineWrap wrap_;
};

}  // namespace ibid::cli
