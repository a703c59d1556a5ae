#include "text/jinja/lexer.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>

#include "text/jinja/unicode.h"

namespace ibid::jinja {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_name_start(char c) {
  return c == '_' || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || static_cast<uint8_t>(c) >= 0x80;
}
int digit_value(char c) {
  if (is_digit(c)) return c - '0';
  c |= 32;
  return c >= 'a' && c <= 'z' ? c - 'a' + 10 : 99;
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : s_(source) {}

  Result<std::vector<Token>> run() {
    while (at_ < s_.size()) TRY(lex_root());
    put(Tok::kEof, at_);
    return std::move(tokens_);
  }

 private:
  Error error(std::string message, size_t at) const {
    return invalid("The chat template is wrong at " + place_in(s_, at) + ": " + std::move(message), "chat_template");
  }
  bool starts(std::string_view what) const { return s_.substr(at_, what.size()) == what; }
  Token& put(Tok type, size_t at, std::string text = {}) {
    tokens_.push_back({type, static_cast<uint32_t>(at), std::move(text)});
    return tokens_.back();
  }
  size_t skip_spaces(size_t i) const {
    while (i < s_.size()) {
      size_t next = i;
      if (!is_space(next_char(s_, next))) break;
      i = next;
    }
    return i;
  }

  // Data before a tag that begins with `sign` after its two characters; `is_block`: lstrip_blocks applies.
  void put_data(size_t begin, size_t end, char sign, bool is_block) {
    if (sign == '-') {
      while (end > begin) {
        size_t last = previous_char(s_, end);
        size_t next = last;
        if (!is_space(next_char(s_, next))) break;
        end = last;
      }
    } else if (sign != '+' && is_block) {
      size_t line = end;
      while (line > begin && s_[line - 1] != '\n') --line;
      bool at_line_start = line > begin || line_starting_;
      if (at_line_start && skip_spaces(line) >= end) end = line;
    }
    if (end > begin) put(Tok::kData, begin, std::string(s_.substr(begin, end - begin)));
  }

  // Takes the end of a tag at `i` ("-%}", "+%}" or "%}"), if there is one, with the white space it eats.
  bool take_end(size_t& i, std::string_view end, bool trims, bool plus) const {
    char sign = i < s_.size() ? s_[i] : 0;
    size_t at = i + (sign == '-' || (plus && sign == '+') ? 1 : 0);
    if (s_.substr(at, end.size()) != end) return false;
    at += end.size();
    if (sign == '-') {
      at = skip_spaces(at);
    } else if (sign != '+' && trims && at < s_.size() && s_[at] == '\n') {
      ++at;
    }
    i = at;
    return true;
  }

  void advance(size_t to) {
    line_starting_ = to > at_ ? s_[to - 1] == '\n' : line_starting_;
    at_ = to;
  }

  Status lex_root() {
    size_t begin = at_;
    size_t tag = begin;
    for (;; ++tag) {
      tag = s_.find('{', tag);
      if (tag == std::string_view::npos || tag + 1 >= s_.size()) {
        put(Tok::kData, begin, std::string(s_.substr(begin)));
        at_ = s_.size();
        return {};
      }
      if (s_[tag + 1] == '{' || s_[tag + 1] == '%' || s_[tag + 1] == '#') break;
    }
    char what = s_[tag + 1];
    size_t after = tag + 2;
    char sign = after < s_.size() && (s_[after] == '-' || s_[after] == '+') ? s_[after] : 0;
    put_data(begin, tag, sign, what != '{');
    if (sign != 0) ++after;
    if (what == '#') return lex_comment(tag, after);
    if (what == '%') {
      size_t raw = skip_spaces(after);
      if (s_.substr(raw, 3) == "raw") {
        raw = skip_spaces(raw + 3);
        if (take_end(raw, "%}", false, false)) {
          advance(raw);
          return lex_raw(tag);
        }
      }
    }
    put(what == '%' ? Tok::kBlockBegin : Tok::kVariableBegin, tag);
    advance(after);
    return lex_tag(what == '%');
  }

  Status lex_comment(size_t tag, size_t after) {
    for (size_t end = after;; ++end) {
      end = s_.find("#}", end);
      if (end == std::string_view::npos) return error("a comment is not closed; '#}' is missing.", tag);
      size_t from = end > after && (s_[end - 1] == '-' || s_[end - 1] == '+') ? end - 1 : end;
      if (take_end(from, "#}", true, true)) {
        advance(from);
        return {};
      }
    }
  }

  Status lex_raw(size_t tag) {
    size_t begin = at_;
    for (size_t end = begin;; ++end) {
      end = s_.find("{%", end);
      if (end == std::string_view::npos) return error("a raw block is not closed; '{% endraw %}' is missing.", tag);
      size_t i = end + 2;
      char sign = i < s_.size() && (s_[i] == '-' || s_[i] == '+') ? s_[i] : 0;
      if (sign != 0) ++i;
      i = skip_spaces(i);
      if (s_.substr(i, 6) != "endraw") continue;
      i = skip_spaces(i + 6);
      if (!take_end(i, "%}", true, true)) continue;
      put_data(begin, end, sign, true);
      advance(i);
      return {};
    }
  }

  Status lex_tag(bool block) {
    std::string open;  // brackets that wait for their end; the tag cannot end inside them
    size_t tag = at_;
    while (true) {
      size_t i = at_;
      if (open.empty() && take_end(i, block ? "%}" : "}}", block, block)) {
        put(block ? Tok::kBlockEnd : Tok::kVariableEnd, at_);
        advance(i);
        return {};
      }
      if (at_ >= s_.size()) return error("the tag is not closed.", tag);
      if (size_t next = skip_spaces(at_); next != at_) {
        at_ = next;
        continue;
      }
      char c = s_[at_];
      if (is_digit(c)) {
        TRY(lex_number());
      } else if (is_name_start(c)) {
        while (i < s_.size() && (is_name_start(s_[i]) || is_digit(s_[i]))) ++i;
        put(Tok::kName, at_, std::string(s_.substr(at_, i - at_)));
        at_ = i;
      } else if (c == '\'' || c == '"') {
        TRY(lex_string());
      } else {
        TRY(lex_operator(open));
      }
    }
  }

  Status lex_operator(std::string& open) {
    for (std::string_view two : {"//", "**", "==", "!=", ">=", "<="}) {
      if (starts(two)) {
        put(Tok::kOperator, at_, std::string(two));
        at_ += 2;
        return {};
      }
    }
    char c = s_[at_];
    if (std::string_view("+-/*%~[](){}><=.:|,;").find(c) == std::string_view::npos) {
      size_t i = at_;
      next_char(s_, i);
      return error("the character '" + std::string(s_.substr(at_, i - at_)) + "' has no meaning here.", at_);
    }
    if (c == '(' || c == '[' || c == '{') open += c == '(' ? ')' : c == '[' ? ']' : '}';
    if (c == ')' || c == ']' || c == '}') {
      if (open.empty()) return error(std::string("'") + c + "' closes nothing.", at_);
      if (open.back() != c) return error(std::string("'") + c + "' found, '" + open.back() + "' expected.", at_);
      open.pop_back();
    }
    put(Tok::kOperator, at_, std::string(1, c));
    ++at_;
    return {};
  }

  // Digits of `base` with single underscores between them, from i on; the end, or i where there are none.
  size_t digits(size_t i, int base) const {
    if (i >= s_.size() || digit_value(s_[i]) >= base) return i;
    while (i < s_.size()) {
      if (digit_value(s_[i]) < base) {
        ++i;
      } else if (s_[i] == '_' && i + 1 < s_.size() && digit_value(s_[i + 1]) < base) {
        i += 2;
      } else {
        break;
      }
    }
    return i;
  }

  Status lex_number() {
    size_t begin = at_;
    size_t i = digits(begin, 10);
    size_t end = i;
    bool real = false;
    bool after_dot = begin > 0 && s_[begin - 1] == '.';  // a.0.1 is two subscripts
    if (!after_dot) {
      if (end < s_.size() && s_[end] == '.' && digits(end + 1, 10) != end + 1) {
        end = digits(end + 1, 10);
        real = true;
      }
      if (end < s_.size() && (s_[end] | 32) == 'e') {
        size_t e = end + 1;
        if (e < s_.size() && (s_[e] == '+' || s_[e] == '-')) ++e;
        if (size_t exponent = digits(e, 10); exponent != e) {
          end = exponent;
          real = true;
        }
      }
    }
    int base = 10;
    size_t first = begin;
    if (!real) {
      end = i;
      if (s_[begin] == '0') {
        char kind = begin + 1 < s_.size() ? static_cast<char>(s_[begin + 1] | 32) : 0;
        int other = kind == 'x' ? 16 : kind == 'o' ? 8 : kind == 'b' ? 2 : 0;
        size_t from = begin + 2;
        if (other != 0 && from < s_.size() && s_[from] == '_') ++from;
        if (size_t last = other != 0 ? digits(from, other) : from; last != from) {
          base = other;
          first = from;
          end = last;
        } else {  // 0, 00, 0_0; "01" is 0 and then 1, as Jinja reads it
          end = begin + 1;
          while (end < s_.size() && (s_[end] == '0' || (s_[end] == '_' && end + 1 < s_.size() && s_[end + 1] == '0')))
            ++end;
        }
      }
    }
    std::string clean(s_.substr(first, end - first));
    clean.erase(std::remove(clean.begin(), clean.end(), '_'), clean.end());
    Token& token = put(real ? Tok::kFloat : Tok::kInteger, begin, clean);
    if (real) {
      token.real = std::strtod(clean.c_str(), nullptr);
    } else if (std::from_chars(clean.data(), clean.data() + clean.size(), token.integer, base).ec != std::errc()) {
      return error("the integer " + clean.substr(0, 40) + " does not fit 64 bits.", begin);
    }
    at_ = end;
    return {};
  }

  Status lex_string() {
    size_t begin = at_;
    char quote = s_[at_];
    std::string out;
    size_t i = at_ + 1;
    for (;; ++i) {
      if (i >= s_.size()) return error("a string is not closed.", begin);
      if (s_[i] == quote) break;
      if (s_[i] != '\\') {
        out += s_[i];
        continue;
      }
      if (++i >= s_.size()) return error("a string is not closed.", begin);
      TRY(lex_escape(i, out));
    }
    put(Tok::kString, begin, std::move(out));
    at_ = i + 1;
    return {};
  }

  // `i` is at the character after the backslash, and stays at the last one used.
  Status lex_escape(size_t& i, std::string& out) {
    char c = s_[i];
    static constexpr std::string_view kFrom = "\\'\"abfnrtv";
    static constexpr std::string_view kTo = "\\'\"\a\b\f\n\r\t\v";
    if (size_t k = kFrom.find(c); k != std::string_view::npos) {
      out += kTo[k];
      return {};
    }
    if (c == '\n') return {};
    uint32_t code = 0;
    if (c >= '0' && c <= '7') {
      size_t n = 0;
      for (; n < 3 && i + n < s_.size() && s_[i + n] >= '0' && s_[i + n] <= '7'; ++n)
        code = code * 8 + (s_[i + n] - '0');
      i += n - 1;
    } else if (c == 'x' || c == 'u' || c == 'U') {
      size_t n = c == 'x' ? 2 : c == 'u' ? 4 : 8;
      for (size_t k = 1; k <= n; ++k) {
        int value = i + k < s_.size() ? digit_value(s_[i + k]) : 99;
        if (value >= 16)
          return error(std::string("the escape \\") + c + " needs " + std::to_string(n) + " hexadecimal digits.", i);
        code = code * 16 + static_cast<uint32_t>(value);
      }
      i += n;
    } else if (c == 'N') {
      return error("the escape \\N{name} is not served; write \\u with the code point.", i);
    } else {
      out += '\\';
      if (static_cast<uint8_t>(c) < 0x80) {
        out += c;
        return {};
      }
      // Python writes a non-ASCII character as an escape of its own before it reads the escapes.
      size_t next = i;
      uint32_t code_point = next_char(s_, next);
      char hex[16];
      std::snprintf(hex, sizeof hex,
                    code_point < 0x100     ? "x%02x"
                    : code_point < 0x10000 ? "u%04x"
                                           : "U%08x",
                    code_point);
      out += hex;
      i = next - 1;
      return {};
    }
    if (code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) return error("the escape names no character.", i);
    utf8::append(code, out);
    return {};
  }

  std::string_view s_;
  size_t at_ = 0;
  bool line_starting_ = true;
  std::vector<Token> tokens_;
};

}  // namespace

std::string normalize_source(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      out += '\n';
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    } else {
      out += source[i];
    }
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

Result<std::vector<Token>> tokenize(std::string_view source) { return Lexer(source).run(); }

std::string place_in(std::string_view source, size_t at) {
  at = std::min(at, source.size());
  std::string_view before = source.substr(0, at);
  size_t line = 1 + static_cast<size_t>(std::count(before.begin(), before.end(), '\n'));
  size_t start = before.rfind('\n');
  size_t column = 1 + utf8::count(before.substr(start == std::string_view::npos ? 0 : start + 1));
  return "line " + std::to_string(line) + ", column " + std::to_string(column);
}

}  // namespace ibid::jinja
