// An answer of `ibid run` as it grows: what a program reads is the text alone, byte for byte; a terminal has it
// rendered and broken by the window's width, and reasoning, progress and ends beside it.
#pragma once

#include <string>

#include "cli/chat/chat.h"
#include "cli/terminal/line_wrap.h"
#include "cli/terminal/terminal_markdown.h"

namespace ibid::cli {

enum class Shown { kProgram, kPlainTerminal, kTerminal };  // kPlainTerminal: without styles
Shown standard_output();
bool can_move_cursor();  // what standard output is

class TerminalPrinter final : public AnswerSink {
 public:
  explicit TerminalPrinter(Shown to) : to_(to), wrap_(can_move_cursor()) {}
  void part(const AnswerPart& part) override;
  void progress(int32_t n_computed, int32_t n_prompt) override;
  // Prints `remark` in brackets: why the answer is not whole; empty: prints none.
  void end(const std::string& remark);
  void drop();  // nothing comes: the progress goes away

 private:
  void end_progress(std::string& out);
  void end_reasoning(std::string& out);

  Shown to_;
  bool shows_progress_ = false;
  bool is_reasoning_ = false;
  bool is_fence_ = false;  // of plain text
  std::string line_;       // its last one, as far as it may open a fence
  TerminalMarkdown markdown_;
  LineWrap wrap_;  // of what is no Markdown
};

// A word about what was done, dim where styles are shown; to a person alone.
void say_dim(const std::string& sentence);

}  // namespace ibid::cli
