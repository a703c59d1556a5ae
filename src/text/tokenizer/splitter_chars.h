// Shared by the splitters' two files: code points with their classes, runs of them, and common endings of expressions.
#pragma once

#include <array>
#include <cstdint>

#include "base/utf8.h"
#include "text/tokenizer/unicode.h"

namespace ibid::split {

// The classes of a code point that the expressions test, as one small set.
enum Class : uint16_t {
  kLetter = 1,
  kNumber = 2,
  kSpace = 4,
  kUpperLike = 8,   // [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]
  kLowerLike = 16,  // [\p{Ll}\p{Lm}\p{Lo}\p{M}]
  kPunct = 32,      // \p{P}
  kSymbol = 64,     // \p{S}
  kMark = 128,      // \p{M}
  kNewline = 256,   // \r \n
};

inline constexpr std::array<uint16_t, 32> kClassOfCategory = [] {
  std::array<uint16_t, 32> t = {};
  using namespace unicode;
  t[kLu] = t[kLt] = kLetter | kUpperLike;
  t[kLl] = kLetter | kLowerLike;
  t[kLm] = t[kLo] = kLetter | kUpperLike | kLowerLike;
  t[kMn] = t[kMc] = t[kMe] = kMark | kUpperLike | kLowerLike;
  t[kNd] = t[kNl] = t[kNo] = kNumber;
  for (int c : {kPc, kPd, kPs, kPe, kPi, kPf, kPo}) t[static_cast<size_t>(c)] = kPunct;
  for (int c : {kSm, kSc, kSk, kSo}) t[static_cast<size_t>(c)] = kSymbol;
  t[kZs] = t[kZl] = t[kZp] = Class::kSpace;
  return t;
}();

inline uint16_t class_of_any(char32_t c) {
  if (c == '\r' || c == '\n') return kSpace | kNewline;
  if ((c >= 9 && c <= 13) || c == 0x85) return kSpace;
  return kClassOfCategory[unicode::category(c)];
}

inline const std::array<uint16_t, 128> kClassOfAscii = [] {
  std::array<uint16_t, 128> t = {};
  for (char32_t c = 0; c < 128; ++c) t[c] = class_of_any(c);
  return t;
}();

struct Char {
  char32_t value;
  uint32_t len;
  uint16_t classes;
  bool is(int any) const { return (classes & any) != 0; }
};

inline Char at(const char* p, const char* end) {
  unsigned char c = static_cast<unsigned char>(*p);
  if (c < 0x80) return {c, 1, kClassOfAscii[c]};
  utf8::CodePoint d = utf8::decode_multibyte(p, end);
  return {d.value, d.len, class_of_any(d.value)};
}

template <typename Predicate>
inline const char* run(const char* p, const char* end, Predicate is) {
  while (p < end) {
    Char c = at(p, end);
    if (!is(c)) break;
    p += c.len;
  }
  return p;
}
inline const char* run_of(int classes, const char* p, const char* end) {
  return run(p, end, [classes](const Char& c) { return c.is(classes); });
}
inline const char* run_without(int classes, const char* p, const char* end) {
  return run(p, end, [classes](const Char& c) { return !c.is(classes); });
}

// 's|'t|'re|'ve|'m|'ll|'d after an apostrophe at p, or p. Ignoring case, U+017F is an s.
inline const char* contraction(const char* p, const char* end, bool any_case) {
  if (p == end || *p != '\'' || end - p < 2) return p;
  auto letter = [&](const char* q) -> char {
    if (q >= end) return 0;
    return any_case && *q >= 'A' && *q <= 'Z' ? static_cast<char>(*q + 32) : *q;
  };
  char a = letter(p + 1), b = letter(p + 2);
  if (a == 's' || a == 't' || a == 'm' || a == 'd') return p + 2;
  if ((a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l')) return p + 3;
  if (any_case && end - p >= 3 && p[1] == '\xC5' && p[2] == '\xBF') return p + 3;
  return p;
}

// \s+(?!\S)|\s+ at a whitespace p: a run leaves its last one to the word that follows.
inline const char* space_run(const char* p, const char* end) {
  const char* last = p;
  const char* q = p;
  while (q < end) {
    Char c = at(q, end);
    if (!c.is(kSpace)) return last == p ? q : last;
    last = q;
    q += c.len;
  }
  return end;
}

// \s*[\r\n]+ at a whitespace p: up to the last line end of the run; else space_run.
inline const char* space_with_newlines(const char* p, const char* end) {
  const char* after_newline = nullptr;
  const char* last = p;
  const char* q = p;
  while (q < end) {
    Char c = at(q, end);
    if (!c.is(kSpace)) break;
    last = q;
    q += c.len;
    if (c.is(kNewline)) after_newline = q;
  }
  if (after_newline) return after_newline;
  if (q == end) return end;
  return last == p ? q : last;
}

inline const char* up_to_n(int n, int classes, const char* p, const char* end) {
  for (; n > 0 && p < end; --n) {
    Char c = at(p, end);
    if (!c.is(classes)) break;
    p += c.len;
  }
  return p;
}

inline bool is_number(const Char& c) { return c.is(kNumber); }

}  // namespace ibid::split
