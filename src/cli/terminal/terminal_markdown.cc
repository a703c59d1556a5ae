#include "cli/terminal/terminal_markdown.h"

#include <algorithm>
#include <cctype>
#include <utility>

namespace ibid::cli {
namespace {

constexpr const char* kReset = "\x1b[0m";
constexpr const char* kDim = "\x1b[2m";
constexpr const char* kCode = "\x1b[36m";
constexpr const char* kBad = "\xEF\xBF\xBD";
constexpr size_t kMaxStart = 80;  // bytes of white space and marks that a line's kind may take

bool is_control(char c) { return (static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\t') || c == 0x7f; }
bool is_word(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || (static_cast<unsigned char>(c) & 0x80) != 0;
}
bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\n'; }
bool all_of(std::string_view text, char c) { return text.find_first_not_of(c) == std::string_view::npos; }

}  // namespace

std::string harmless(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool is_c1 = text[i] == '\xC2' && i + 1 < text.size() && static_cast<unsigned char>(text[i + 1]) < 0xA0;
    if (is_control(text[i]) || is_c1) {
      out += kBad;
      i += is_c1 ? 1 : 0;
    } else {
      out += text[i];
    }
  }
  return out;
}

void TerminalMarkdown::push(std::string_view text, std::string& out) {
  std::string styled;
  for (const char c : text) {
    const bool was_code = !fence_.empty();
    take(c, styled);
    wrap_.push(styled, !was_code && fence_.empty(), out);
    styled.clear();
  }
}

void TerminalMarkdown::take(char c, std::string& out) {
  if (is_c2_) {
    is_c2_ = false;
    if (static_cast<unsigned char>(c) < 0xA0) {
      for (const char bad : std::string_view(kBad)) step(bad, out);
      return;
    }
    step('\xC2', out);
  }
  if (c == '\xC2') {
    is_c2_ = true;
  } else if (is_control(c)) {
    for (const char bad : std::string_view(kBad)) step(bad, out);
  } else {
    step(c, out);
  }
}

void TerminalMarkdown::finish(std::string& out) {
  std::string styled;
  const bool was_code = !fence_.empty();
  if (is_c2_) step('\xC2', styled);
  is_c2_ = false;
  end_line(styled);
  wrap_.push(styled, !was_code && fence_.empty(), out);
  wrap_.finish(out);
  LineWrap wrap = std::move(wrap_);
  *this = TerminalMarkdown();
  wrap_ = std::move(wrap);
}

void TerminalMarkdown::step(char c, std::string& out) {
  if (c == '\n') {
    end_line(out);
    out += '\n';
    last_ = '\n';
    at_start_ = true;
  } else if (at_start_) {
    step_start(c, out);
  } else if (!fence_.empty()) {
    put(c, out);
  } else {
    step_inline(c, out);
  }
}

// The beginning of a line determines what it is.
void TerminalMarkdown::step_start(char c, std::string& out) {
  start_ += c;
  if (start_.size() < kMaxStart && !begin_block(out)) return;
  const std::string rest = std::exchange(start_, "");
  at_start_ = false;
  for (const char k : rest) fence_.empty() ? step_inline(k, out) : put(k, out);
}

// True where the line's kind is known; what of start_ is not shown yet stays in it.
bool TerminalMarkdown::begin_block(std::string& out) {
  const size_t indent = start_.find_first_not_of(" \t");
  if (indent == std::string::npos) return false;
  const std::string_view text = std::string_view(start_).substr(indent);
  const char first = text.front();
  if (!fence_.empty()) {
    if (first == fence_.front() && all_of(text, first)) return false;  // it may be the end
    out += kCode;
    return true;
  }
  const bool may_be_rule = (first == '-' || first == '*' || first == '_') && all_of(text, first);
  const size_t n = std::min(text.find_first_not_of(first), text.size());
  const bool is_open = n == text.size();  // marks alone, so far
  if (first == '#') {
    if (is_open) return n > 6;
    if (text[n] != ' ') return true;
    is_heading_ = true;
    start_.clear();
    style(out);
  } else if (first == '`' || first == '~') {
    if (is_open) return false;
    if (n < 3) return true;
    fence_.assign(n, first);
    is_info_ = true;
    start_ = std::string(text.substr(n));
    out += kDim;
  } else if (first == '>') {
    out.append(start_, 0, indent).append(kDim).append("│").append(kReset);
    start_.clear();
  } else if ((first == '-' || first == '+' || first == '*') && n == 1) {
    if (is_open) return false;
    if (text[1] != ' ') return true;
    out.append(start_, 0, indent).append("• ");
    start_.clear();
  } else if (may_be_rule && is_open) {
    return false;
  }
  return true;
}

void TerminalMarkdown::style(std::string& out) const {
  out += kReset;
  if (is_bold_ || is_heading_) out += "\x1b[1m";
  if (is_italic_) out += "\x1b[3m";
  if (code_marks_ > 0) out += kCode;
}

void TerminalMarkdown::put(char c, std::string& out) {
  out += c;
  last_ = c;
}

void TerminalMarkdown::step_inline(char c, std::string& out) {
  if (!run_.empty()) {
    if (c == run_.front()) {
      run_ += c;
      return;
    }
    end_run(c, out);
  }
  if (is_escaped_) {
    is_escaped_ = false;
    if (std::ispunct(static_cast<unsigned char>(c)) == 0) put('\\', out);
    put(c, out);
  } else if (c == '`' || (code_marks_ == 0 && (c == '*' || c == '_'))) {
    run_ = c;
  } else if (c == '\\' && code_marks_ == 0) {
    is_escaped_ = true;
  } else {
    put(c, out);
  }
}

// A run of marks is read when what follows it is known.
void TerminalMarkdown::end_run(char next, std::string& out) {
  const std::string run = std::exchange(run_, "");
  const bool is_code = run.front() == '`';
  if (is_code) {
    if (code_marks_ == 0 ? next == '\n' : run.size() != code_marks_) {
      out += run;
    } else {
      code_marks_ = code_marks_ == 0 ? run.size() : 0;
      style(out);
    }
    last_ = '`';
    return;
  }
  const bool opens = !is_blank(next) && !is_word(last_), closes = !is_blank(last_) && !is_word(next);
  const bool is_star = run.front() == '*';  // which may also stand within a word
  bool& flag = run.size() == 1 ? is_italic_ : is_bold_;
  const bool turns =
      flag ? closes || (is_star && !is_blank(last_)) : opens || (is_star && run.size() > 1 && !is_blank(next));
  if (run.size() > 3 || !turns) {
    out += run;
    last_ = run.back();
    return;
  }
  flag = !flag;
  if (run.size() == 3) is_italic_ = flag;
  style(out);
}

void TerminalMarkdown::end_line(std::string& out) {
  bool is_rule = false;
  if (!run_.empty()) end_run('\n', out);
  if (is_escaped_) put('\\', out);
  if (!start_.empty()) {
    const size_t indent = std::min(start_.find_first_not_of(" \t"), start_.size());
    const std::string_view text = std::string_view(start_).substr(indent);
    const char first = text.empty() ? ' ' : text.front();
    if (!fence_.empty()) {
      if (text.size() >= fence_.size() && first == fence_.front()) {
        fence_.clear();
      } else {
        out.append(kCode).append(start_);
      }
    } else if (text.size() >= 3 && (first == '`' || first == '~')) {
      fence_.assign(text);
      is_info_ = true;
    } else if (text.size() >= 3 && (first == '-' || first == '*' || first == '_') && all_of(text, first)) {
      out.append(kDim).append("────────");
      is_rule = true;
    } else {
      out += start_;
    }
    start_.clear();
  }
  if (is_bold_ || is_italic_ || is_heading_ || code_marks_ > 0 || is_info_ || is_rule || !fence_.empty()) out += kReset;
  is_bold_ = is_italic_ = is_heading_ = is_info_ = is_escaped_ = false;
  code_marks_ = 0;
}

}  // namespace ibid::cli
