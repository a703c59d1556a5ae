// JsonCursor: reads JSON from where it stands, without building a tree: a tokenizer.json holds a million small values.
// Values that are small and deep are taken as slices and read as a tree (base/json.h).
//
// After the first error every call fails; error() states what was found at which byte.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace ibid {

class JsonCursor {
 public:
  static constexpr int kMaxDepth = 64;
  explicit JsonCursor(std::string_view text) : text_(text) {}

  char peek();  // first character of the next value, '\0' at the end
  // Objects: begin_object(), then next_key() until it gives false. Arrays: begin_array(), then next_element().
  bool begin_object() { return expect('{'); }
  bool next_key(std::string& key) { return begin_key() && read_string(key) && end_key(); }
  bool next_key(std::string_view& key, std::string& storage) {  // as read_view
    return begin_key() && read_view(key, storage) && end_key();
  }
  bool begin_array() { return expect('['); }
  bool next_element();
  bool read_string(std::string& out);  // unescaped, valid UTF-8
  // The same without a copy: out points into the text, or into storage where there are escapes.
  bool read_view(std::string_view& out, std::string& storage);
  // As read_view, but UTF-8 is left to the caller to check.
  bool read_bytes(std::string_view& out, std::string& storage);
  bool read_number(double& out);
  // As the reference reads a score: the digits as a 64-bit integer, rounded to double, times or over a power of ten. In
  // the last bit that is often not the nearest double, and ties between two spellings of a text hang on it.
  bool read_score(double& out);
  bool read_int(int64_t& out);  // refuses fractions, exponents and what does not fit
  bool read_bool(bool& out);
  bool skip(std::string_view* slice = nullptr);  // any value; strings are looked at only for their end
  bool at_end();                                 // nothing but white space is left

  bool failed() const { return failed_; }
  Error error() const;
  bool fail(std::string_view expected);
  size_t position() const { return at_; }

 private:
  void skip_space() {
    if (at_ < text_.size() && static_cast<unsigned char>(text_[at_]) <= ' ') skip_more_space();
  }
  void skip_more_space();
  bool expect(char c);
  bool read_escape(std::string& out);
  bool read_hex4(uint32_t& value);
  bool number_end(size_t& end);
  bool begin_key();
  bool end_key();
  size_t plain_end(size_t from, bool& ascii) const;
  bool read_rest(std::string& out, bool check);
  bool skip_string();
  bool skip_nested(int depth);

  std::string_view text_;
  size_t at_ = 0;
  bool first_ = false;  // right after { or [
  bool failed_ = false;
  std::string expected_;
};

}  // namespace ibid
