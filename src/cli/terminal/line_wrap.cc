#include "cli/terminal/line_wrap.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <clocale>
#include <cwchar>
#include <utility>

#include "base/utf8.h"

namespace ibid::cli {
namespace {

constexpr std::string_view kStyleReset = "\x1b[0m";
constexpr std::string_view kQuote = "\u2502", kBullet = "\u2022";
constexpr int kTab = 8;

// "•", "-", "12." and their like.
bool is_list_mark(std::string_view mark) {
  if (mark == kBullet || mark == "-" || mark == "*" || mark == "+") return true;
  if (mark.size() < 2 || (mark.back() != '.' && mark.back() != ')')) return false;
  mark.remove_suffix(1);
  return std::ranges::all_of(mark, [](unsigned char c) { return std::isdigit(c) != 0; });
}

int text_columns(std::string_view text) {
  int n = 0;
  for (const char *p = text.data(), *end = p + text.size(); p < end;) {
    const utf8::CodePoint c = utf8::decode(p, end);
    n += columns_of(c.value);
    p += c.len;
  }
  return n;
}

// Where what follows the line's first break is to begin.
size_t hang_of(std::string_view line) {
  const size_t indent = std::min(line.find_first_not_of(' '), line.size());
  const size_t gap = line.find("  ", indent);
  const size_t second = gap == std::string_view::npos ? gap : line.find_first_not_of(' ', gap);
  return second == std::string_view::npos ? indent : second;
}

void wrap_line(std::string_view line, int width, std::string& out) {
  const size_t most = static_cast<size_t>(width);
  if (static_cast<size_t>(text_columns(line)) <= most) {
    out += line;
    return;
  }
  size_t hang = hang_of(line);
  if (hang > most / 2) hang = std::min<size_t>(4, most / 4);
  const size_t indent = std::min(line.find_first_not_of(' '), line.size());
  out.append(line.substr(0, indent));
  size_t column = indent;
  bool is_first = true;
  for (size_t at = indent; at < line.size();) {
    const size_t end = std::min(line.find(' ', at), line.size());
    const size_t next = std::min(line.find_first_not_of(' ', end), line.size());
    const std::string_view word = line.substr(at, end - at);
    const auto n = static_cast<size_t>(text_columns(word));
    if (!is_first && column + n > most) {
      while (out.ends_with(' ')) out.pop_back();
      out.append("\n").append(hang, ' ');
      column = hang;
    }
    is_first = false;
    out.append(word).append(next - end, ' ');
    column += n + next - end;
    at = next;
  }
}

}  // namespace

int columns_of(int fd) {
  winsize size = {};
  return isatty(fd) != 0 && ioctl(fd, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

int columns_of(char32_t character) {
  const int n = wcwidth(static_cast<wchar_t>(character));
  return n < 0 ? 1 : n;
}

void use_utf8() { setlocale(LC_CTYPE, "C.UTF-8"); }

std::string wrapped(std::string_view text, int width) {
  if (width <= 0) return std::string(text);
  std::string out;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    wrap_line(text.substr(0, end), width, out);
    if (end < text.size()) out += '\n';
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return out;
}

void LineWrap::push(std::string_view text, bool wraps, std::string& out) {
  if (!wraps || width_ <= 0) {
    end_word(out);
    out.append(std::exchange(partial_, "")).append(text);
    if (const size_t line = text.rfind('\n'); line != std::string_view::npos) begin_line();
    return;
  }
  for (const char c : text) {
    if (c == '\x1b' || partial_.starts_with('\x1b')) {
      step_style(c, out);
      continue;
    }
    partial_ += c;
    if (!utf8::is_unfinished(partial_)) step(std::exchange(partial_, ""), out);
  }
}

void LineWrap::finish(std::string& out) {
  end_word(out);
  out += std::exchange(partial_, "");
  begin_line();
}

void LineWrap::begin_line() {
  column_ = word_width_ = hang_width_ = 0;
  is_lead_ = true;
  word_.clear();
  lead_.clear();
  hang_.clear();
}

void LineWrap::step_style(char c, std::string& out) {
  partial_ += c;
  if (partial_.size() == 1 || c == '[' || std::isalpha(static_cast<unsigned char>(c)) == 0) return;
  const std::string style = std::exchange(partial_, "");
  has_styles_ = true;
  style == kStyleReset ? style_.clear() : static_cast<void>(style_ += style);
  const bool is_held = !can_move_ && !word_.empty();
  if (!word_.empty()) word_ += style;
  if (!is_held) out += style;
}

void LineWrap::end_word(std::string& out) {
  if (!can_move_) out += word_;
  word_.clear();
  word_width_ = 0;
  is_long_ = false;
}

void LineWrap::break_line(std::string& out) {
  if (has_styles_) out += kStyleReset;
  out.append("\n").append(hang_).append(style_);
  column_ = hang_width_;
}

void LineWrap::lead(std::string_view character) {
  if (!is_lead_) return;
  if (character != " ") {
    lead_ += character;
    is_lead_ = lead_.size() < 6;
    return;
  }
  if (lead_.empty()) {  // an indentation
    hang_width_ = column_;
    hang_.assign(static_cast<size_t>(column_), ' ');
  } else {
    is_lead_ = lead_ == kQuote;
    if (is_lead_) {
      hang_.append(has_styles_ ? "\x1b[2m" : "").append(kQuote).append(has_styles_ ? kStyleReset : "").append(" ");
    } else if (is_list_mark(lead_)) {
      hang_.append(static_cast<size_t>(column_ - hang_width_), ' ');
    } else {
      return;
    }
    hang_width_ = column_;
    lead_.clear();
  }
  if (hang_width_ <= width_ / 2) return;
  hang_.clear();
  hang_width_ = 0;
}

void LineWrap::blank(char c, std::string& out) {
  end_word(out);
  const int n = c == '\t' ? kTab - column_ % kTab : 1;
  if (column_ < width_) out += c;
  column_ += n;
  lead(" ");
}

void LineWrap::step(std::string_view character, std::string& out) {
  const char first = character.front();
  if (first == '\n') {
    end_word(out);
    out += '\n';
    begin_line();
    return;
  }
  if (first == ' ' || first == '\t') return blank(first, out);
  const int n = columns_of(utf8::decode(character.data(), character.data() + character.size()).value);
  if (n > 1) end_word(out);  // a line may end between wide characters
  if (word_.empty()) {
    word_column_ = column_;
    word_style_ = style_;
  }
  if (column_ + n > width_) {
    if (is_long_ || (word_column_ <= hang_width_ && !word_.empty())) {
      column_ = 0;  // the terminal goes on by itself
      is_long_ = true;
    } else {
      const std::string now = std::exchange(style_, word_style_);
      if (can_move_ && !word_.empty()) {
        out += '\r';
        if (word_column_ > 0) out += "\x1b[" + std::to_string(word_column_) + "C";
        out += "\x1b[K";
      }
      break_line(out);
      word_column_ = column_;
      column_ += word_width_;
      if (can_move_) out += word_;
      style_ = now;
    }
  }
  lead(character);
  word_ += character;
  if (can_move_) out += character;
  word_width_ += n;
  column_ += n;
}

}  // namespace ibid::cli
