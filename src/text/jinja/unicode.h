// The code point properties of Python's str methods, for templates (tables: unicode_tables.cc, generated).
// Strings are valid UTF-8 throughout ibid::jinja; "char" in these names means code point.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/utf8.h"

namespace ibid::jinja {

enum class CharSet {
  kAlpha,
  kDecimal,
  kDigit,
  kNumeric,
  kSpace,
  kPrintable,
  kLower,
  kUpper,
  kTitle,
  kCased,
  kCaseIgnorable
};
enum class Case { kUpper, kLower, kTitle, kFold };

bool is_in(CharSet set, uint32_t c);
inline bool is_space(uint32_t c) {
  return c < 0x80 ? (c >= 9 && c <= 13) || (c >= 0x1C && c <= 0x20) : is_in(CharSet::kSpace, c);
}

// The code point at byte `i`; moves `i` past it. `text` is valid UTF-8 and i < text.size().
inline uint32_t next_char(std::string_view text, size_t& i) {
  const utf8::CodePoint c = utf8::decode(text.data() + i, text.data() + text.size());
  i += c.len;
  return c.value;
}
// The byte where code point `n` begins; text.size() if there are fewer.
size_t byte_of_char(std::string_view text, size_t n);
// A name for a sentence: its first 60 code points.
inline std::string shown(std::string_view name) { return std::string(name.substr(0, byte_of_char(name, 60))); }
// The beginning of the code point that ends before byte `i` > 0.
size_t previous_char(std::string_view text, size_t i);

// Appends the mapping of the code point at `begin`..`end` of `text` (its place matters for a final sigma).
void append_case(Case to, std::string_view text, size_t begin, uint32_t c, std::string& out);

struct CodeRange {
  uint32_t first, last;
};
struct CodeSet {
  const CodeRange* ranges;
  size_t n;
};
struct CaseRow {
  uint32_t from;
  uint32_t to[3];
};
struct CaseTable {
  const CaseRow* rows;
  size_t n;
};
extern const CodeSet kCodeSets[];      // by CharSet
extern const CaseTable kCaseTables[];  // by Case; kTitle only where it differs from kUpper, kFold from kLower

}  // namespace ibid::jinja
