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

uint32_t next_char(std::string_view text, size_t& i) {
  auto byte = [&](size_t k) -> uint32_t { return i + k < text.size() ? static_cast<uint8_t>(text[i + k]) & 63 : 0; };
  auto lead = static_cast<uint8_t>(text[i]);
  uint32_t c = lead;
  size_t n = 1;
  if (lead >= 0xF0) {
    c = (lead & 7u) << 18 | byte(1) << 12 | byte(2) << 6 | byte(3);
    n = 4;
  } else if (lead >= 0xE0) {
    c = (lead & 15u) << 12 | byte(1) << 6 | byte(2);
    n = 3;
  } else if (lead >= 0xC0) {
    c = (lead & 31u) << 6 | byte(1);
    n = 2;
  }
  i = std::min(text.size(), i + n);
  return c;
}

void append_char(uint32_t c, std::string& out) {
  auto put = [&](uint32_t byte) { out += static_cast<char>(byte); };
  if (c < 0x80) {
    put(c);
  } else if (c < 0x800) {
    put(0xC0 | c >> 6), put(0x80 | (c & 63));
  } else if (c < 0x10000) {
    put(0xE0 | c >> 12), put(0x80 | (c >> 6 & 63)), put(0x80 | (c & 63));
  } else {
    put(0xF0 | c >> 18), put(0x80 | (c >> 12 & 63)), put(0x80 | (c >> 6 & 63)), put(0x80 | (c & 63));
  }
}

size_t count_chars(std::string_view text) {
  size_t n = 0;
  for (char byte : text) n += (static_cast<uint8_t>(byte) & 0xC0) != 0x80;
  return n;
}

size_t byte_of_char(std::string_view text, size_t n) {
  size_t i = 0;
  for (; i < text.size(); ++i) {
    if ((static_cast<uint8_t>(text[i]) & 0xC0) == 0x80) continue;
    if (n-- == 0) return i;
  }
  return i;
}

size_t previous_char(std::string_view text, size_t i) {
  do --i;
  while (i > 0 && (static_cast<uint8_t>(text[i]) & 0xC0) == 0x80);
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
    append_char(is_final_sigma(text, begin) ? 0x3C2 : 0x3C3, out);
    return;
  }
  const CaseRow* row = find_row(to, c);
  if (row == nullptr && to == Case::kTitle) row = find_row(Case::kUpper, c);
  if (row == nullptr && to == Case::kFold) row = find_row(Case::kLower, c);
  if (row == nullptr) return append_char(c, out);
  for (uint32_t code : row->to) {
    if (code != 0) append_char(code, out);
  }
}

}  // namespace ibid::jinja
