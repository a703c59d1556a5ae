// Stages that cut something out of a text and leave the rest in one piece.
#include <algorithm>
#include <iterator>

#include "text/tokenizer/splitter.h"
#include "text/tokenizer/splitter_chars.h"

namespace ibid::split {
namespace {

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

struct Range {
  char32_t first, last;
};
template <size_t n>
bool in(const Range (&ranges)[n], char32_t c) {
  return std::any_of(std::begin(ranges), std::end(ranges), [c](Range r) { return c >= r.first && c <= r.last; });
}
// The scripts that afmoe's expression sets apart.
constexpr Range kAsianRanges[] = {{0x4E00, 0x9FFF}, {0x3400, 0x4DBF}, {0x8C48, 0xFAFF}, {0x3040, 0x309F},
                                  {0x30A0, 0x30FF}, {0xFF65, 0xFF9F}, {0x2F00, 0x2FDF}, {0xE40, 0xE7F},
                                  {0xE80, 0xEFF},   {0x1780, 0x17FF}, {0x1000, 0x109F}, {0xAA60, 0xAA7F},
                                  {0xA9E0, 0xA9FF}, {0xAC00, 0xD7AF}, {0x1100, 0x11FF}};

bool is_digit(const Char& c) { return unicode::category(c.value) == unicode::kNd; }

// How many characters in a row from p are digits, and where they end.
struct DigitRun {
  size_t count = 0;
  const char* end;
};
template <typename Predicate>
DigitRun digit_run(const char* p, const char* end, Predicate is) {
  DigitRun d = {.end = p};
  for (; d.end < end; ++d.count) {
    Char c = at(d.end, end);
    if (!is(c)) break;
    d.end += c.len;
  }
  return d;
}
template <typename Predicate>
const char* skip(size_t n, const char* p, const char* end, Predicate is) {
  for (; n > 0 && p < end && is(at(p, end)); --n) p += at(p, end).len;
  return p;
}
// Digits are grouped from the right, but read from the left: one stage cuts off the one or two that lead, and leaves
// the groups in one piece for the next; counting again at every group would cost the square of a long number.
template <typename Predicate>
const char* leading_digits(const char* p, const char* end, Predicate is) {
  DigitRun d = digit_run(p, end, is);
  return d.count % 3 == 0 ? d.end : skip(d.count % 3, p, end, is);
}

// \b after a digit. The reference's engine for expressions takes six signs of Latin-1 for word characters, and not the
// joiners, which the one of unicode::kWord takes.
bool at_word_end(const char* p, const char* end) {
  if (p == end) return true;
  char32_t c = at(p, end).value;
  bool sign = c == 0xB2 || c == 0xB3 || c == 0xB9 || (c >= 0xBC && c <= 0xBE);
  bool joiner = c == 0x200C || c == 0x200D;
  return !sign && (joiner || !unicode::has(c, unicode::kWord));
}

// The last code point of a piece; p < end.
Char last_of(const char* p, const char* end) {
  const char* q = end - 1;
  while (q > p && end - q < 4 && utf8::goes_on(*q)) --q;
  return at(q, end);
}

// Where a match begins at p its end, else where the next one begins. match: its end, or null.
const char* cut_out(const char* p, const char* end, const char* (*match)(const char*, const char*)) {
  if (const char* after = match(p, end)) return after;
  for (p += at(p, end).len; p < end && !match(p, end);) p += at(p, end).len;
  return p;
}

}  // namespace

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

const char* asian_scripts(const char* p, const char* end) {
  return runs(p, end, [](const Char& c) { return in(kAsianRanges, c.value); });
}

const char* youtu_scripts(const char* p, const char* end) {
  auto kind = [](const Char& c) {
    char32_t v = c.value;
    if ((v >= 0xAC00 && v <= 0xD7A3) || (v >= 0x3131 && v <= 0x318E)) return 1;
    static constexpr std::u32string_view kMarks = U"\uFF01\u2026\u201C\u201D\u2018\u2019\u2014\uFF1A\uFF1B\uFF0C";
    if (kMarks.find(v) != kMarks.npos || (v >= 0x3001 && v <= 0x303F) || (v >= 0xFE30 && v <= 0xFE4F)) return 2;
    if (v >= 0x3105 && v <= 0x312F) return 3;
    return (v >= 0x4E00 && v <= 0x9FA5) || (v >= 0x3040 && v <= 0x30FF) ? 4 : 0;
  };
  int first = kind(at(p, end));
  return run(p, end, [&](const Char& c) { return kind(c) == first; });
}

const char* lines(const char* p, const char* end) {
  return runs(p, end, [](const Char& c) { return c.value == '\n'; });
}

const char* number_groups(const char* p, const char* end) {
  if (!is_number(at(p, end))) return run_without(kNumber, p, end);
  return leading_digits(p, end, is_number);
}

const char* free_digit_groups(const char* p, const char* end) {
  DigitRun d = digit_run(p, end, is_digit);
  if (d.count > 0 && at_word_end(d.end, end)) return leading_digits(p, end, is_digit);
  for (p = d.end; p < end;) {
    p = run(p, end, [](const Char& c) { return !is_digit(c); });
    d = digit_run(p, end, is_digit);
    if (d.count > 0 && at_word_end(d.end, end)) return p;
    p = d.end;
  }
  return end;
}
const char* digits_in_threes(const char* p, const char* end) {
  return is_digit(last_of(p, end)) && is_digit(at(p, end)) ? skip(3, p, end, is_digit) : end;
}

const char* before_digit_groups(const char* p, const char* end) {
  DigitRun d = digit_run(p, end, is_digit);
  if (d.count > 3) return skip(d.count % 3 == 0 ? d.count - 3 : d.count % 3, p, end, is_digit);
  for (p = d.end; p < end;) {
    p = run(p, end, [](const Char& c) { return !is_digit(c); });
    d = digit_run(p, end, is_digit);
    if (d.count >= 3) return skip(d.count % 3, p, end, is_digit);
    p = d.end;
  }
  return end;
}
const char* before_digits_in_threes(const char* p, const char* end) {
  const char* q = skip(3, p, end, is_digit);
  return digit_run(p, q, is_digit).count == 3 && q < end && is_digit(at(q, end)) ? q : end;
}

const char* spaces_by_halves(const char* p, const char* end) {
  Char last = last_of(p, end);
  if (!last.is(kSpace) || last.is(kNewline)) return end;
  size_t n = 0;
  for (const char* q = p; q < end && n < 512; ++n) q += at(q, end).len;
  size_t taken = 512;
  while (taken > n) taken /= 2;
  return skip(taken, p, end, [](const Char&) { return true; });
}

const char* sentinels(const char* p, const char* end) {
  return cut_out(p, end, [](const char* q, const char* stop) -> const char* {
    constexpr std::string_view kHead = "<sentinel:";
    std::string_view rest(q, static_cast<size_t>(stop - q));
    if (!rest.starts_with(kHead)) return nullptr;
    size_t digits = rest.find_first_not_of("0123456789", kHead.size());
    return digits != rest.npos && digits > kHead.size() && rest[digits] == '>' ? q + digits + 1 : nullptr;
  });
}
const char* image_tokens(const char* p, const char* end) {
  return cut_out(p, end, [](const char* q, const char* stop) -> const char* {
    constexpr std::string_view kHead = "IMGIMG";
    std::string_view rest(q, static_cast<size_t>(stop - q));
    if (!rest.starts_with(kHead)) return nullptr;
    size_t letters = rest.find_first_not_of("ABCDEFGHI", kHead.size());
    bool some = letters != rest.npos && letters > kHead.size() && letters <= kHead.size() + 4;
    return some && rest[letters] == 'Z' ? q + letters + 1 : nullptr;
  });
}
const char* chameleon_spaces(const char* p, const char* end) {
  return cut_out(p, end, [](const char* q, const char* stop) -> const char* {
    std::string_view rest(q, static_cast<size_t>(stop - q));
    if (*q == '\t' || *q == '\n') return q + 1;
    return rest.starts_with("    ") ? q + 4 : rest.starts_with("  ") ? q + 2 : nullptr;
  });
}
const char* each_punctuation(const char* p, const char* end) {
  return singles(p, end, [](const Char& c) { return c.is(kPunct) || (c.value < 128 && c.is(kSymbol)); });
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
