#include "base/json_cursor.h"

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cstring>

#include "base/utf8.h"

namespace ibid {

namespace {

// 10^0 to 10^308, each the nearest double.
const std::array<double, 309>& powers_of_ten() {
  static const std::array<double, 309> kPowers = [] {
    std::array<double, 309> t = {};
    for (size_t i = 0; i < t.size(); ++i) {
      std::string text = "1e" + std::to_string(i);
      std::from_chars(text.data(), text.data() + text.size(), t[i]);
    }
    return t;
  }();
  return kPowers;
}

constexpr uint64_t kOnes = 0x0101010101010101u;
constexpr uint64_t kHighs = 0x8080808080808080u;

}  // namespace

Error JsonCursor::error() const {
  std::string found = at_ < text_.size() ? "'" + std::string(1, text_[at_]) + "'" : "the end";
  if (at_ < text_.size() && (text_[at_] < ' ' || text_[at_] > '~')) {
    found = "the byte " + std::to_string(static_cast<unsigned char>(text_[at_]));
  }
  return invalid("at byte " + std::to_string(at_) + " " + expected_ + " is expected and " + found + " is found");
}

bool JsonCursor::fail(std::string_view expected) {
  if (!failed_) expected_ = expected;
  failed_ = true;
  return false;
}

void JsonCursor::skip_more_space() {
  const char* p = text_.data() + at_;
  const char* end = text_.data() + text_.size();
  while (p < end && (*p == ' ' || *p == '\n' || *p == '\r' || *p == '\t')) {
    // Files are indented with spaces.
    for (uint64_t eight; ++p, end - p >= 8 && (std::memcpy(&eight, p, 8), eight == kOnes * ' '); p += 7) {
    }
  }
  at_ = static_cast<size_t>(p - text_.data());
}

// The first quote, backslash or control character at or after `from`; ascii becomes false where another byte came
// first.
size_t JsonCursor::plain_end(size_t from, bool& ascii) const {
  const char* p = text_.data() + from;
  const char* end = text_.data() + text_.size();
  uint64_t seen = 0;
  if constexpr (std::endian::native == std::endian::little) {
    for (uint64_t eight; end - p >= 8; p += 8) {
      std::memcpy(&eight, p, 8);
      uint64_t quote = eight ^ kOnes * '"', backslash = eight ^ kOnes * '\\';
      // The lowest bit set in each is exact; those above it need not be.
      uint64_t stop =
          ((quote - kOnes) & ~quote) | ((backslash - kOnes) & ~backslash) | ((eight - kOnes * ' ') & ~eight);
      if (stop &= kHighs; stop != 0) {
        ascii = ((seen | (eight & ((stop & -stop) - 1))) & kHighs) == 0;
        return static_cast<size_t>(p - text_.data()) + static_cast<size_t>(std::countr_zero(stop) / 8);
      }
      seen |= eight;
    }
  }
  for (; p < end && *p != '"' && *p != '\\' && static_cast<unsigned char>(*p) >= ' '; ++p) {
    seen |= static_cast<unsigned char>(*p);
  }
  ascii = (seen & kHighs) == 0;
  return static_cast<size_t>(p - text_.data());
}

char JsonCursor::peek() {
  skip_space();
  return at_ < text_.size() ? text_[at_] : '\0';
}

bool JsonCursor::expect(char c) {
  if (failed_) return false;
  if (peek() != c) return fail(std::string("'") + c + "'");
  ++at_;
  first_ = true;
  return true;
}

bool JsonCursor::begin_key() {
  if (failed_) return false;
  char c = peek();
  if (c == '}') {
    ++at_;
    first_ = false;
    return false;
  }
  if (!first_) {
    if (c != ',') return fail("',' or '}'");
    ++at_;
  }
  first_ = false;
  return peek() == '"' || fail("a key");
}

bool JsonCursor::end_key() {
  if (peek() != ':') return fail("':'");
  ++at_;
  return true;
}

bool JsonCursor::next_element() {
  if (failed_) return false;
  char c = peek();
  if (c == ']') {
    ++at_;
    first_ = false;
    return false;
  }
  if (!first_) {
    if (c != ',') return fail("',' or ']'");
    ++at_;
  }
  first_ = false;
  return true;
}

bool JsonCursor::read_hex4(uint32_t& value) {
  if (text_.size() - at_ < 4) return fail("four hexadecimal digits");
  auto [end, status] = std::from_chars(text_.data() + at_, text_.data() + at_ + 4, value, 16);
  if (status != std::errc() || end != text_.data() + at_ + 4) return fail("four hexadecimal digits");
  at_ += 4;
  return true;
}

bool JsonCursor::read_escape(std::string& out) {
  if (at_ == text_.size()) return fail("an escape");
  switch (text_[at_++]) {
    case '"':
      out += '"';
      return true;
    case '\\':
      out += '\\';
      return true;
    case '/':
      out += '/';
      return true;
    case 'b':
      out += '\b';
      return true;
    case 'f':
      out += '\f';
      return true;
    case 'n':
      out += '\n';
      return true;
    case 'r':
      out += '\r';
      return true;
    case 't':
      out += '\t';
      return true;
    case 'u':
      break;
    default:
      --at_;
      return fail("an escape");
  }
  uint32_t c = 0;
  if (!read_hex4(c)) return false;
  if (c >= 0xD800 && c < 0xDC00) {
    uint32_t low = 0;
    if (text_.substr(at_, 2) != "\\u") return fail("the second half of a surrogate pair");
    at_ += 2;
    if (!read_hex4(low)) return false;
    if (low < 0xDC00 || low > 0xDFFF) return fail("the second half of a surrogate pair");
    c = 0x10000 + ((c - 0xD800) << 10) + (low - 0xDC00);
  } else if (c >= 0xDC00 && c < 0xE000) {
    return fail("the first half of a surrogate pair");
  }
  utf8::append(c, out);
  return true;
}

bool JsonCursor::read_string(std::string& out) {
  if (failed_) return false;
  if (peek() != '"') return fail("a string");
  ++at_;
  out.clear();
  return read_rest(out, true);
}

bool JsonCursor::read_view(std::string_view& out, std::string& storage) {
  if (!read_bytes(out, storage)) return false;
  if (!utf8::is_valid(out)) return fail("valid UTF-8 in the string that ends here");
  return true;
}

bool JsonCursor::read_bytes(std::string_view& out, std::string& storage) {
  if (failed_) return false;
  if (peek() != '"') return fail("a string");
  bool ascii = true;
  size_t from = ++at_;
  at_ = plain_end(from, ascii);
  out = text_.substr(from, at_ - from);
  if (at_ < text_.size() && text_[at_] == '"') return ++at_, true;
  storage.assign(out);
  if (!read_rest(storage, false)) return false;
  out = storage;
  return true;
}

// A string from behind its quote, or from anywhere in it, appended to out.
bool JsonCursor::read_rest(std::string& out, bool check) {
  while (true) {
    bool ascii = true;
    size_t from = at_;
    at_ = plain_end(from, ascii);
    std::string_view part = text_.substr(from, at_ - from);
    if (check && !ascii && !utf8::is_valid(part)) return fail("valid UTF-8 in the string that ends here");
    out.append(part);
    if (at_ == text_.size()) return fail("the end of a string");
    char c = text_[at_];
    if (c != '"' && c != '\\') return fail("an escaped control character");
    ++at_;
    if (c == '"') return true;
    if (!read_escape(out)) return false;
  }
}

// The end of the number at at_, by JSON's grammar.
bool JsonCursor::number_end(size_t& end) {
  size_t i = at_;
  auto digits = [&] {
    size_t from = i;
    while (i < text_.size() && text_[i] >= '0' && text_[i] <= '9') ++i;
    return i > from;
  };
  if (i < text_.size() && text_[i] == '-') ++i;
  size_t whole = i;
  if (!digits() || (text_[whole] == '0' && i > whole + 1)) return fail("a number");
  if (i < text_.size() && text_[i] == '.') {
    ++i;
    if (!digits()) return fail("a number");
  }
  if (i < text_.size() && (text_[i] == 'e' || text_[i] == 'E')) {
    ++i;
    if (i < text_.size() && (text_[i] == '+' || text_[i] == '-')) ++i;
    if (!digits()) return fail("a number");
  }
  end = i;
  return true;
}

bool JsonCursor::read_number(double& out) {
  size_t end = 0;
  if (failed_) return false;
  peek();
  if (!number_end(end)) return false;
  auto [stop, status] = std::from_chars(text_.data() + at_, text_.data() + end, out);
  if (status != std::errc() || stop != text_.data() + end) return fail("a number that a double can hold");
  at_ = end;
  return true;
}

bool JsonCursor::read_score(double& out) {
  size_t end = 0;
  double nearest = 0.0;
  if (failed_) return false;
  peek();
  if (!number_end(end)) return false;
  std::string_view number = text_.substr(at_, end - at_);
  auto [stop, status] = std::from_chars(number.data(), number.data() + number.size(), nearest);
  if (status != std::errc()) return fail("a number that a double can hold");
  bool negative = number[0] == '-';
  uint64_t digits = 0;
  int64_t exponent = 0;
  bool fraction = false, full = false;
  size_t i = negative ? 1 : 0;
  for (; i < number.size() && number[i] != 'e' && number[i] != 'E'; ++i) {
    if (number[i] == '.') {
      fraction = true;
      continue;
    }
    auto digit = static_cast<uint64_t>(number[i] - '0');
    full |= digits > UINT64_MAX / 10 || (digits == UINT64_MAX / 10 && digit > UINT64_MAX % 10);
    if (!full) digits = digits * 10 + digit;
    exponent += full ? !fraction : -fraction;
  }
  if (i < number.size()) {
    int64_t written = 0;
    const char* first = number.data() + i + 1 + (number[i + 1] == '+');
    if (std::from_chars(first, number.data() + number.size(), written).ec != std::errc()) written = 0;
    // A zero may have any exponent; what is added here is at most the text's length.
    exponent += std::clamp(written, -(int64_t{1} << 40), int64_t{1} << 40);
  }
  double value = static_cast<double>(digits);
  if (exponent >= -308 && exponent <= 308 && digits != 0) {
    double power = powers_of_ten()[static_cast<size_t>(exponent < 0 ? -exponent : exponent)];
    value = exponent < 0 ? value / power : value * power;
    out = negative ? -value : value;
  } else {
    out = nearest;
  }
  at_ = end;
  return true;
}

bool JsonCursor::read_int(int64_t& out) {
  size_t end = 0;
  if (failed_) return false;
  peek();
  if (!number_end(end)) return false;
  auto [stop, status] = std::from_chars(text_.data() + at_, text_.data() + end, out);
  if (status != std::errc() || stop != text_.data() + end) return fail("a whole number below 2^63");
  at_ = end;
  return true;
}

bool JsonCursor::read_bool(bool& out) {
  if (failed_) return false;
  peek();
  if (text_.substr(at_, 4) == "true") return at_ += 4, out = true, true;
  if (text_.substr(at_, 5) == "false") return at_ += 5, out = false, true;
  return fail("true or false");
}

bool JsonCursor::skip(std::string_view* slice) {
  peek();
  size_t from = at_;
  if (!skip_nested(0)) return false;
  if (slice) *slice = text_.substr(from, at_ - from);
  return true;
}

// Only to its end: what is wrong inside shows when the slice is read.
bool JsonCursor::skip_string() {
  bool ascii = true;
  for (++at_; (at_ = plain_end(at_, ascii)) < text_.size(); at_ = std::min(at_ + 2, text_.size())) {
    if (text_[at_] == '"') return ++at_, true;
    if (text_[at_] != '\\') return fail("an escaped control character");
  }
  at_ = text_.size();
  return fail("the end of a string");
}

bool JsonCursor::skip_nested(int depth) {
  if (failed_) return false;
  if (depth == kMaxDepth)
    return fail("less than " + std::to_string(kMaxDepth) + " levels of nesting; so a simpler value");
  size_t end = 0;
  switch (peek()) {
    case '{':
      begin_object();
      while (begin_key()) {
        if (!skip_string() || !end_key() || !skip_nested(depth + 1)) return false;
      }
      return !failed_;
    case '[':
      begin_array();
      while (next_element()) {
        if (!skip_nested(depth + 1)) return false;
      }
      return !failed_;
    case '"':
      return skip_string();
    case 't':
    case 'f': {
      bool b = false;
      return read_bool(b);
    }
    case 'n':
      if (text_.substr(at_, 4) != "null") return fail("a value");
      at_ += 4;
      return true;
    default:
      if (!number_end(end)) return false;
      at_ = end;
      return true;
  }
}

bool JsonCursor::at_end() { return !failed_ && peek() == '\0' && at_ == text_.size(); }

}  // namespace ibid
