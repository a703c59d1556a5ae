// TextReader: a place in a text of a grammar, for parsers; errors name line and column.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>

#include "base/quoted.h"
#include "base/result.h"
#include "base/utf8.h"

namespace ibid::grammar {

class TextReader {
 public:
  explicit TextReader(std::string_view text) : text_(text) {}

  bool at_end() const { return at_ >= text_.size(); }
  char peek(size_t ahead = 0) const { return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0'; }
  bool starts_with(std::string_view what) const { return text_.substr(at_).starts_with(what); }
  bool take(std::string_view what) {
    if (!starts_with(what)) return false;
    at_ += what.size();
    return true;
  }
  size_t position() const { return at_; }
  void go_to(size_t position) { at_ = position; }
  void skip(size_t n) { at_ = std::min(text_.size(), at_ + n); }
  std::string_view from(size_t begin) const { return text_.substr(begin, at_ - begin); }
  std::string_view rest() const { return text_.substr(at_); }

  // The next code point; there must be a byte. False where it is no UTF-8.
  bool code_point(uint32_t& out) {
    const utf8::CodePoint c = utf8::decode(text_.data() + at_, text_.data() + text_.size());
    at_ += c.len;
    out = c.value;
    return c.valid;
  }
  // Up to n hexadecimal digits, all of them.
  bool hex(int n, uint32_t& out) {
    out = 0;
    for (int i = 0; i < n; ++i) {
      const int digit = hex_digit(peek());
      if (digit < 0) return false;
      out = out << 4 | static_cast<uint32_t>(digit);
      ++at_;
    }
    return true;
  }
  static int hex_digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
  }
  // A decimal number below 2^31; false where there is none, or it is larger.
  bool number(uint32_t& out) {
    if (peek() < '0' || peek() > '9') return false;
    uint64_t value = 0;
    for (; peek() >= '0' && peek() <= '9'; ++at_)
      value = std::min<uint64_t>(value * 10 + static_cast<uint64_t>(peek() - '0'), 1ull << 40);
    out = static_cast<uint32_t>(value);
    return value < (1ull << 31);
  }
  static bool is_name(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
  }

  Error error(std::string_view what) const {
    const std::string_view before = text_.substr(0, std::min(at_, text_.size()));
    const auto line = 1 + std::count(before.begin(), before.end(), '\n');
    const size_t begin = before.rfind('\n') == std::string_view::npos ? 0 : before.rfind('\n') + 1;
    std::string message = "Line " + std::to_string(line) + ", column " + std::to_string(before.size() - begin + 1) +
                          ": " + std::string(what);
    message += at_end() ? "; the text ends there." : ", at " + in_quotes(text_.substr(at_), 20) + ".";
    return invalid(std::move(message));
  }

 private:
  std::string_view text_;
  size_t at_ = 0;
};

inline constexpr int kMaxNesting = 200;  // of brackets in brackets
inline constexpr size_t kMaxText = 1 << 20;
inline constexpr size_t kMaxClass = 50'000;  // characters and ranges of one class, as they are written

}  // namespace ibid::grammar
