#include "text/splitter.h"

#include <algorithm>
#include <array>

#include "text/unicode.h"
#include "text/utf8.h"

namespace ibid::split {
namespace {

using unicode::Category;

// What the expressions ask of a code point, as one small set.
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

constexpr std::array<uint16_t, 32> kClassOfCategory = [] {
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

uint16_t class_of_any(char32_t c) {
  if (c == '\r' || c == '\n') return kSpace | kNewline;
  if ((c >= 9 && c <= 13) || c == 0x85) return kSpace;
  return kClassOfCategory[unicode::category(c)];
}

const std::array<uint16_t, 128> kClassOfAscii = [] {
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
const char* contraction(const char* p, const char* end, bool any_case) {
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
const char* space_run(const char* p, const char* end) {
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
const char* space_with_newlines(const char* p, const char* end) {
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

const char* up_to_n(int n, int classes, const char* p, const char* end) {
  for (; n > 0 && p < end; --n) {
    Char c = at(p, end);
    if (!c.is(classes)) break;
    p += c.len;
  }
  return p;
}

// What llama3, qwen2, gpt4o and tekken share after their words and numbers.
template <bool kSlash>
const char* other_or_space(const char* p, const char* end, const Char& first) {
  const char* q = first.value == ' ' ? p + 1 : p;
  const char* after = run_without(kSpace | kLetter | kNumber, q, end);
  if (after > q) {
    return run(after, end, [](const Char& c) { return c.is(kNewline) || (kSlash && c.value == '/'); });
  }
  return space_with_newlines(p, end);
}

template <int kDigits>
const char* llama3_like(const char* p, const char* end) {
  if (*p == '\'') {
    if (const char* q = contraction(p, end, true); q != p) return q;
  }
  Char c = at(p, end);
  if (c.is(kLetter)) return run_of(kLetter, p + c.len, end);
  if (c.is(kNumber)) return up_to_n(kDigits, kNumber, p, end);
  if (!c.is(kNewline)) {
    const char* q = run_of(kLetter, p + c.len, end);
    if (q > p + c.len) return q;
  }
  return other_or_space<false>(p, end, c);
}

// U*V+ from p (U like an upper-case letter, V like a lower-case one, marks and uncased letters are both), or null. The
// expression gives back what U* took until a V is found: the last character of the run that is both.
const char* lower_word(const char* p, const char* end) {
  const char* after_both = nullptr;
  const char* q = p;
  while (q < end) {
    Char c = at(q, end);
    if (!c.is(kUpperLike)) break;
    q += c.len;
    if (c.is(kLowerLike)) after_both = q;
  }
  const char* after = run_of(kLowerLike, q, end);
  return after > q ? after : after_both;
}
// U+V* from p, or null.
const char* upper_word(const char* p, const char* end) {
  const char* q = run_of(kUpperLike, p, end);
  return q == p ? nullptr : run_of(kLowerLike, q, end);
}

template <bool kContractions, int kDigits>
const char* cased_like(const char* p, const char* end) {
  Char c = at(p, end);
  const char* prefixed = c.is(kLetter | kNumber | kNewline) ? nullptr : p + c.len;
  const char* q = prefixed ? lower_word(prefixed, end) : nullptr;
  if (!q) q = lower_word(p, end);
  if (!q && prefixed) q = upper_word(prefixed, end);
  if (!q) q = upper_word(p, end);
  if (q) return kContractions ? contraction(q, end, true) : q;
  if (c.is(kNumber)) return up_to_n(kDigits, kNumber, p, end);
  return other_or_space<true>(p, end, c);
}

// A stage that cuts out single characters, or runs of them, and leaves the rest in one piece.
template <typename Predicate>
inline const char* runs(const char* p, const char* end, Predicate is) {
  bool first = is(at(p, end));
  return run(p, end, [&](const Char& c) { return is(c) == first; });
}
template <typename Predicate>
inline const char* singles(const char* p, const char* end, Predicate is) {
  Char c = at(p, end);
  if (is(c)) return p + c.len;
  return run(p + c.len, end, [&](const Char& d) { return !is(d); });
}
// \s?X+: where a match begins at p its end, else where the next one begins.
template <typename Predicate>
inline const char* spaced_runs(const char* p, const char* end, Predicate is) {
  auto match_begins = [&](const char* q, const Char& c) {
    return is(c) || (c.is(kSpace) && q + c.len < end && is(at(q + c.len, end)));
  };
  Char c = at(p, end);
  if (match_begins(p, c)) return run(p + c.len, end, is);
  for (p += c.len; p < end; p += c.len) {
    c = at(p, end);
    if (match_begins(p, c)) break;
  }
  return p;
}

// The cased letters of deepseek-llm's expression, first and last code points in turn.
constexpr char32_t kCasedRanges[] = {
    'A',     'Z',     'a',     'z',     0xB5,    0xB5,    0xC0,    0xD6,    0xD8,    0xF6,    0xF8,    0x1BA,   0x1BC,
    0x1BF,   0x1C4,   0x293,   0x295,   0x2AF,   0x370,   0x373,   0x376,   0x377,   0x37B,   0x37D,   0x37F,   0x37F,
    0x386,   0x386,   0x388,   0x38A,   0x38C,   0x38C,   0x38E,   0x3A1,   0x3A3,   0x3F5,   0x3F7,   0x481,   0x48A,
    0x52F,   0x531,   0x556,   0x10A0,  0x10C5,  0x13A0,  0x13F5,  0x13F8,  0x13FD,  0x1C90,  0x1CBA,  0x1CBD,  0x1CBF,
    0x1D00,  0x1D2B,  0x1D6B,  0x1D77,  0x1D79,  0x1D9A,  0x1E00,  0x1F15,  0x1F18,  0x1F1D,  0x1F20,  0x1F45,  0x1F48,
    0x1F4D,  0x1F50,  0x1F57,  0x1F59,  0x1F59,  0x1F5B,  0x1F5B,  0x1F5D,  0x1F5D,  0x1F5F,  0x1F7D,  0x1F80,  0x1FB4,
    0x1FB6,  0x1FBC,  0x1FBE,  0x1FBE,  0x1FC2,  0x1FC4,  0x1FC6,  0x1FCC,  0x1FD0,  0x1FD3,  0x1FD6,  0x1FDB,  0x1FE0,
    0x1FEC,  0x1FF2,  0x1FF4,  0x1FF6,  0x1FFC,  0x2102,  0x2102,  0x2107,  0x2107,  0x210A,  0x2113,  0x2115,  0x2115,
    0x2119,  0x211D,  0x2124,  0x2124,  0x2126,  0x2126,  0x2128,  0x2128,  0x212A,  0x212D,  0x212F,  0x2134,  0x2139,
    0x2139,  0x213C,  0x213F,  0x2145,  0x2149,  0x214E,  0x214E,  0x2183,  0x2184,  0x2C00,  0x2C7B,  0x2C7E,  0x2CE4,
    0x2CEB,  0x2CEE,  0x2CF2,  0x2CF3,  0xA640,  0xA66D,  0xA680,  0xA69B,  0xA722,  0xA76F,  0xA771,  0xA787,  0xA78B,
    0xA78E,  0xAB70,  0xABBF,  0xFB00,  0xFB06,  0xFB13,  0xFB17,  0xFF21,  0xFF3A,  0xFF41,  0xFF5A,  0x10400, 0x1044F,
    0x104B0, 0x104D3, 0x104D8, 0x104FB, 0x10C80, 0x10CB2, 0x10CC0, 0x10CF2, 0x118A0, 0x118DF, 0x1E900, 0x1E943};

bool is_number(const Char& c) { return c.is(kNumber); }

}  // namespace

const char* gpt2(const char* p, const char* end) {
  if (*p == '\'') {
    if (const char* q = contraction(p, end, false); q != p) return q;
  }
  Char c = at(p, end);
  const char* q = p + c.len;
  if (c.value == ' ' && q < end) {
    Char d = at(q, end);
    if (!d.is(kSpace)) c = d, q += d.len;
  }
  if (c.is(kLetter)) return run_of(kLetter, q, end);
  if (c.is(kNumber)) return run_of(kNumber, q, end);
  if (!c.is(kSpace)) return run_without(kSpace | kLetter | kNumber, q, end);
  return space_run(p, end);
}

const char* llama3(const char* p, const char* end) { return llama3_like<3>(p, end); }
const char* qwen2(const char* p, const char* end) { return llama3_like<1>(p, end); }
const char* gpt4o(const char* p, const char* end) { return cased_like<true, 3>(p, end); }
const char* tekken(const char* p, const char* end) { return cased_like<false, 1>(p, end); }

// [!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|
// \s*[\r\n]+|\s+(?!\S)|\s+; digits never match, they are pieces between matches.
const char* deepseek3(const char* p, const char* end) {
  auto match = [end](const char* q) -> const char* {
    Char c = at(q, end);
    const char* after = q + c.len;
    if (c.value < 128 && c.is(kPunct | kSymbol)) {
      const char* r = run(after, end, [](const Char& d) {
        return (d.value >= 'a' && d.value <= 'z') || (d.value >= 'A' && d.value <= 'Z');
      });
      if (r > after) return r;
    }
    if (!c.is(kNewline | kLetter | kPunct | kSymbol)) {
      const char* r = run_of(kLetter | kMark, after, end);
      if (r > after) return r;
    }
    if (c.is(kLetter | kMark)) return run_of(kLetter | kMark, after, end);
    const char* r = c.value == ' ' ? after : q;
    const char* s = run_of(kPunct | kSymbol, r, end);
    if (s > r) return run_of(kNewline, s, end);
    return c.is(kSpace) ? space_with_newlines(q, end) : nullptr;
  };
  if (const char* after = match(p)) return after;
  for (p += at(p, end).len; p < end; p += at(p, end).len) {
    if (match(p)) break;
  }
  return p;
}

const char* bloom(const char* p, const char* end) {
  auto is = [](const Char& c) {
    static constexpr std::u32string_view kOut = U"(|.,!?\u2026\u3002\uFF0C\u3001\u0964\u06D4\u060C)";
    return !c.is(kSpace) && kOut.find(c.value) == kOut.npos;
  };
  auto begins = [&](const char* q, const Char& c) {
    return is(c) || (c.value == ' ' && q + 1 < end && is(at(q + 1, end)));
  };
  Char c = at(p, end);
  if (begins(p, c)) return run(p + c.len, end, is);
  for (p += c.len; p < end; p += c.len) {
    c = at(p, end);
    if (begins(p, c)) break;
  }
  return p;
}

const char* newline(const char* p, const char* end) {
  return singles(p, end, [](const Char& c) { return c.is(kNewline); });
}
const char* spaced_letters(const char* p, const char* end) {
  return spaced_runs(p, end, [](const Char& c) { return c.is(kLetter); });
}
const char* spaced_punctuation(const char* p, const char* end) {
  return spaced_runs(p, end, [](const Char& c) { return c.is(kPunct); });
}

const char* cased_letters(const char* p, const char* end) {
  return spaced_runs(p, end, [](const Char& c) {
    auto after = std::upper_bound(std::begin(kCasedRanges), std::end(kCasedRanges), c.value);
    size_t i = static_cast<size_t>(after - std::begin(kCasedRanges));
    return i % 2 == 1 || (i > 0 && kCasedRanges[i - 1] == c.value);
  });
}

const char* wide_punctuation(const char* p, const char* end) {
  return spaced_runs(p, end, [](const Char& c) {
    char32_t v = c.value;
    return (v >= '!' && v <= '/') || (v >= ':' && v <= '~') || (v >= 0xFF01 && v <= 0xFF0F) ||
           (v >= 0xFF1A && v <= 0xFF5E) || (v >= 0x2018 && v <= 0x201F) || (v >= 0x3000 && v <= 0x3002);
  });
}

const char* trailing_space(const char* p, const char* end) {
  const char* tail = end;
  for (const char* q = p; q < end;) {
    Char c = at(q, end);
    if (!c.is(kSpace)) {
      tail = end;
    } else if (tail == end) {
      tail = q;
    }
    q += c.len;
  }
  return tail == p ? end : tail;
}

const char* cjk_deepseek(const char* p, const char* end) {
  return runs(p, end, [](const Char& c) {
    char32_t v = c.value;
    return (v >= 0x800 && v <= 0x9FA5) || (v >= 0xAC00 && v <= 0xD7FF);
  });
}
const char* cjk_deepseek3(const char* p, const char* end) {
  return runs(p, end, [](const Char& c) {
    char32_t v = c.value;
    return (v >= 0x4E00 && v <= 0x9FA5) || (v >= 0x3040 && v <= 0x30FF);
  });
}

const char* digit(const char* p, const char* end) {
  return singles(p, end, [](const Char& c) { return unicode::has(c.value, unicode::kNumeric); });
}
const char* number(const char* p, const char* end) { return singles(p, end, is_number); }
const char* digits(const char* p, const char* end) { return runs(p, end, is_number); }
const char* digits_by_three(const char* p, const char* end) {
  if (is_number(at(p, end))) return up_to_n(3, kNumber, p, end);
  return run_without(kNumber, p, end);
}
const char* ascii_digits_by_three(const char* p, const char* end) {
  auto begins = [end](const char* q) {
    return end - q >= 3 && std::all_of(q, q + 3, [](char c) { return c >= '0' && c <= '9'; });
  };
  if (begins(p)) return p + 3;
  for (++p; p < end && !begins(p);) ++p;
  return p;
}
const char* punctuation(const char* p, const char* end) {
  return runs(p, end, [](const Char& c) { return unicode::has(c.value, unicode::kPunctuation); });
}
const char* default_punctuation(const char* p, const char* end) {
  return runs(p, end, [](const Char& c) {
    static constexpr std::u32string_view kAlso = U"$+<=>^~|";
    return c.is(kPunct) || kAlso.find(c.value) != kAlso.npos;
  });
}

std::string cased_letters_pattern() {
  std::string pattern = "\\s?[";
  for (size_t i = 0; i < std::size(kCasedRanges); i += 2) {
    char32_t first = kCasedRanges[i], last = kCasedRanges[i + 1];
    utf8::append(first, pattern);
    if (last > first + 1) pattern += '-';
    if (last > first) utf8::append(last, pattern);
  }
  return pattern + "]+";
}

}  // namespace ibid::split
