// LineRules: where an answer ends by its lines, as editors ask for it. Its output is a prefix of its input.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace ibid {

class LineRules {
 public:
  // Each line but the first begins with at least `n_indent` blanks or tabs, or is empty (0: any). After `max_seconds`
  // the answer ends with the line that it is in (not above 0: never).
  LineRules(int32_t n_indent, double max_seconds) : n_indent_(n_indent), max_seconds_(max_seconds) {}

  // `seconds`: since the first token. Appends what may be sent to `out`; true where the answer ends with that, and then
  // it must not be called again.
  bool push(std::string_view text, double seconds, std::string& out) {
    for (const char c : text) {
      if (is_at_begin_ && (c == ' ' || c == '\t')) {  // held back until the line is known to be one
        blanks_ += c;
        continue;
      }
      if (is_at_begin_ && c != '\n' && static_cast<int32_t>(blanks_.size()) < n_indent_) return true;
      finish(out);
      out += c;
      is_at_begin_ = c == '\n' && n_indent_ > 0;
      if (c == '\n' && max_seconds_ > 0 && seconds > max_seconds_) return true;
    }
    return false;
  }
  // Of an answer that ended by itself.
  void finish(std::string& out) {
    out += blanks_;
    blanks_.clear();
  }

 private:
  int32_t n_indent_;
  double max_seconds_;
  bool is_at_begin_ = false;  // of a further line
  std::string blanks_;        // with which it begins so far
};

}  // namespace ibid
