#include "text/jinja/unicode.h"

#include <algorithm>

namespace ibid::jinja {

bool is_in(CharSet set, uint32_t c) {
  const CodeSet& codes = kCodeSets[static_cast<int>(set)];
  const CodeRange* end = codes.ranges + codes.n;
  const CodeRange* it =
      std::lower_bound(codes.ranges, end, c, [](const CodeRange& r, uint32_t x) { return r.last < x; });
  return it != end && it->first <= c;
}

size_t byte_of_char(std::string_view text, size_t n) {
  size_t i = 0;
  for (; i < text.size(); ++i) {
    if (utf8::goes_on(text[i])) continue;
    if (n-- == 0) return i;
  }
  return i;
}

size_t previous_char(std::string_view text, size_t i) {
  do --i;
  while (i > 0 && utf8::goes_on(text[i]));
  return i;
}

namespace {

const CaseRow* find_row(Case to, uint32_t c) {
  const CaseTable& table = kCaseTables[static_cast<int>(to)];
  const CaseRow* end = table.rows + table.n;
  const CaseRow* it = std::lower_bound(table.rows, end, c, [](const CaseRow& r, uint32_t x) { return r.from < x; });
  return it != end && it->from == c ? it : nullptr;
}

// Unicode's Final_Sigma: a cased letter before it and none after it, both past what is case-ignorable.
bool is_final_sigma(std::string_view text, size_t begin) {
  bool before = false;
  for (size_t i = begin; i > 0 && !before;) {
    i = previous_char(text, i);
    size_t at = i;
    uint32_t c = next_char(text, at);
    if (is_in(CharSet::kCaseIgnorable, c)) continue;
    if (!is_in(CharSet::kCased, c)) return false;
    before = true;
  }
  if (!before) return false;
  next_char(text, begin);
  while (begin < text.size()) {
    uint32_t c = next_char(text, begin);
    if (!is_in(CharSet::kCaseIgnorable, c)) return !is_in(CharSet::kCased, c);
  }
  return true;
}

}  // namespace

void append_case(Case to, std::string_view text, size_t begin, uint32_t c, std::string& out) {
  if (c < 0x80) {
    bool lower = c >= 'a' && c <= 'z';
    bool upper = c >= 'A' && c <= 'Z';
    bool down = to == Case::kLower || to == Case::kFold;
    out += static_cast<char>(down ? (upper ? c + 32 : c) : (lower ? c - 32 : c));
    return;
  }
  if (to == Case::kLower && c == 0x3A3) {
    utf8::append(is_final_sigma(text, begin) ? 0x3C2 : 0x3C3, out);
    return;
  }
  const CaseRow* row = find_row(to, c);
  if (row == nullptr && to == Case::kTitle) row = find_row(Case::kUpper, c);
  if (row == nullptr && to == Case::kFold) row = find_row(Case::kLower, c);
  if (row == nullptr) return utf8::append(c, out);
  for (uint32_t code : row->to) {
    if (code != 0) utf8::append(code, out);
  }
}

}  // namespace ibid::jinja
