// LineEditor: lines that a person types: with keys, history and completion where that is a terminal (libedit), plain
// where it is a file or a pipe. What is pasted is a part of the line, whatever lines it has (bracketed paste); it is
// sent with Enter. One at a time in a process; one thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cli/terminal/line_history.h"

namespace ibid::cli {

enum class Typed { kLine, kInterrupt, kEnd };

class LineEditor {
 public:
  // What the last word of `line` may become: whole words.
  using Candidates = std::vector<std::string> (*)(const std::string& line);

  // `lines`: typed before, and to come (cli/terminal/line_history.h).
  explicit LineEditor(Candidates candidates, LineHistory lines = LineHistory(""));
  ~LineEditor();
  LineEditor(const LineEditor&) = delete;
  LineEditor& operator=(const LineEditor&) = delete;

  bool is_terminal() const { return state_ != nullptr; }
  // Without its end. `draft` stands in the line already. Ctrl-C is kInterrupt, Ctrl-D in an empty line kEnd.
  Typed read(const char* prompt, std::string& line, const std::string& draft = "");
  // The same of a question that may have several lines: those between """ and """, and those that a backslash at
  // their end joins.
  Typed read_question(std::string& text, const std::string& draft = "");
  // For the arrow keys, here and in the next process; a line that begins with a blank only here.
  void remember(const std::string& line);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ibid::cli
