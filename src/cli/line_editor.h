// LineEditor: lines that a person types: with keys, history and completion where that is a terminal (libedit), plain
// where it is a file or a pipe. One at a time in a process; one thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

namespace ibid::cli {

enum class Typed { kLine, kInterrupt, kEnd };

class LineEditor {
 public:
  // What the last word of `line` may become: whole words.
  using Candidates = std::vector<std::string> (*)(const std::string& line);

  explicit LineEditor(Candidates candidates);
  ~LineEditor();
  LineEditor(const LineEditor&) = delete;
  LineEditor& operator=(const LineEditor&) = delete;

  bool is_terminal() const { return state_ != nullptr; }
  // Without its end. `draft` stands in the line already. Ctrl-C is kInterrupt, Ctrl-D in an empty line kEnd.
  Typed read(const char* prompt, std::string& line, const std::string& draft = "");
  // For the arrow keys.
  void remember(const std::string& line);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ibid::cli
