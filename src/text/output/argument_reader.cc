#include "text/output/argument_reader.h"

#include <cstdio>
#include <string_view>

#include "base/json.h"
#include "text/output/markers.h"

namespace ibid {
namespace {

constexpr std::string_view kGemmaQuote = "<|\"|>";

bool is_hex(char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'); }
bool is_of_word(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '-' ||
         c == '+' || c == '.';
}

// Names of arguments may be of any letters.
bool is_of_key(char c) {
  return static_cast<unsigned char>(c) >= ' ' && std::string_view("=:,()[]{}<>\"'\\").find(c) == std::string_view::npos;
}

void append_control(char c, std::string& out) {
  char text[8];
  std::snprintf(text, sizeof text, "\\u%04x", static_cast<unsigned>(static_cast<unsigned char>(c)));
  out += c == '\n' ? "\\n" : c == '\t' ? "\\t" : c == '\r' ? "\\r" : text;
}

}  // namespace

ArgumentReader::Verdict ArgumentReader::feed(char c, std::string& out) {
  if (at_ == At::kString) return feed_string(c, out);
  if (at_ == At::kMark) return feed_mark(c, out);
  if (at_ == At::kWord) {
    if ((is_of_word(c) || (is_key_ && is_of_key(c))) && word_.size() < kMaxWord) return word_ += c, Verdict::kMore;
    if (end_word(c, out) == Verdict::kBad) return Verdict::kBad;
  }
  if (markers::is_blank(c)) return Verdict::kMore;
  switch (at_) {
    case At::kBegin:
      return c == (dialect_ == Dialect::kPython ? '(' : '{') ? open(c, out) : Verdict::kBad;
    case At::kValueOrEnd:
      if (c == ']') return close(c, out);
      [[fallthrough]];
    case At::kValue:
      return begin_value(c, out);
    case At::kKeyOrEnd:
      if (c == '}' || c == ')') return close(c, out);
      [[fallthrough]];
    case At::kKey:
      return begin_key(c, out);
    case At::kColon:
      if (c != (open_.back() == '(' ? '=' : ':')) return Verdict::kBad;
      out += ':';
      at_ = At::kValue;
      return Verdict::kMore;
    default:
      break;
  }
  if (c != ',') return close(c, out);
  out += ',';
  at_ = open_.back() == '[' ? At::kValue : At::kKey;
  return Verdict::kMore;
}

ArgumentReader::Verdict ArgumentReader::open(char bracket, std::string& out) {
  if (open_.size() >= kMaxDepth) return Verdict::kBad;
  open_ += bracket;
  out += bracket == '[' ? '[' : '{';
  at_ = bracket == '[' ? At::kValueOrEnd : At::kKeyOrEnd;
  return Verdict::kMore;
}

ArgumentReader::Verdict ArgumentReader::close(char bracket, std::string& out) {
  if (bracket != (open_.back() == '[' ? ']' : open_.back() == '(' ? ')' : '}')) return Verdict::kBad;
  open_.pop_back();
  out += bracket == ']' ? ']' : '}';
  at_ = At::kCommaOrEnd;
  return open_.empty() ? Verdict::kDone : Verdict::kMore;
}

ArgumentReader::Verdict ArgumentReader::begin_value(char c, std::string& out) {
  is_key_ = false;
  if (c == '{' || c == '[') return open(c, out);
  return begin_key(c, out);
}

// A string or a word: what a key may be, too.
ArgumentReader::Verdict ArgumentReader::begin_key(char c, std::string& out) {
  is_key_ = at_ == At::kKey || at_ == At::kKeyOrEnd;
  const bool is_quote = c == '"' || (c == '\'' && dialect_ == Dialect::kPython);
  if (is_quote && !(is_key_ && open_.back() == '(')) {
    quote_ = c;
    out += '"';
    at_ = At::kString;
  } else if (c == '<' && dialect_ == Dialect::kGemma) {
    word_ = c;
    at_ = At::kMark;
  } else if (is_of_word(c) || (is_key_ && dialect_ != Dialect::kJson && is_of_key(c))) {
    word_ = c;
    at_ = At::kWord;
  } else {
    return Verdict::kBad;
  }
  return Verdict::kMore;
}

ArgumentReader::Verdict ArgumentReader::end_word(char, std::string& out) {
  at_ = is_key_ ? At::kColon : At::kCommaOrEnd;
  if (is_key_) {
    if (dialect_ == Dialect::kJson) return Verdict::kBad;
    while (word_.back() == ' ') word_.pop_back();
    out += '"' + word_ + '"';
    return Verdict::kMore;
  }
  if (word_ == "True" || word_ == "False" || word_ == "None")
    word_ = word_ == "True" ? "true" : word_ == "False" ? "false" : "null";
  if (!parse_json(word_)) return Verdict::kBad;
  out += word_;
  return Verdict::kMore;
}

ArgumentReader::Verdict ArgumentReader::feed_mark(char c, std::string& out) {
  word_ += c;
  if (!kGemmaQuote.starts_with(word_)) return Verdict::kBad;
  if (word_.size() < kGemmaQuote.size()) return Verdict::kMore;
  word_.clear();
  quote_ = '<';
  out += '"';
  at_ = At::kString;
  return Verdict::kMore;
}

void ArgumentReader::end_string(std::string& out) {
  out += '"';
  at_ = is_key_ ? At::kColon : At::kCommaOrEnd;
}

ArgumentReader::Verdict ArgumentReader::feed_string(char c, std::string& out) {
  if (quote_ == '<') {  // raw text up to the next mark
    word_ += c;
    while (!word_.empty() && !kGemmaQuote.starts_with(word_)) {
      const char first = word_.front();
      word_.erase(0, 1);
      if (first == '"' || first == '\\') out += '\\';
      static_cast<unsigned char>(first) < 0x20 ? append_control(first, out) : static_cast<void>(out += first);
    }
    if (word_ != kGemmaQuote) return Verdict::kMore;
    word_.clear();
    end_string(out);
    return Verdict::kMore;
  }
  if (n_escape_ > 1) {
    if (!is_hex(c)) return Verdict::kBad;
    out += c;
    n_escape_ = static_cast<uint8_t>(n_escape_ == 5 ? 0 : n_escape_ + 1);
    return Verdict::kMore;
  }
  if (n_escape_ == 1) {
    n_escape_ = c == 'u' ? 2 : 0;
    if (c == '\'' && dialect_ == Dialect::kPython) return out += c, Verdict::kMore;
    if (c == 'x' && dialect_ == Dialect::kPython) return out += "\\u00", n_escape_ = 4, Verdict::kMore;
    const bool is_known = std::string_view("\"\\/bfnrtu").find(c) != std::string_view::npos;
    out += is_known ? "\\" : "\\\\";  // of what is no escape the backslash is meant, as in a "\d" that a model writes
    static_cast<unsigned char>(c) < 0x20 ? append_control(c, out) : static_cast<void>(out += c);
    return Verdict::kMore;
  }
  if (c == quote_) return end_string(out), Verdict::kMore;
  if (c == '\\') return n_escape_ = 1, Verdict::kMore;
  if (c == '"') out += '\\';
  static_cast<unsigned char>(c) < 0x20 ? append_control(c, out) : static_cast<void>(out += c);
  return Verdict::kMore;
}

}  // namespace ibid
