// Expressions that cut all of a text, alternative by alternative.
#include "text/tokenizer/splitter.h"

#include "text/tokenizer/splitter_chars.h"

namespace ibid::split {
namespace {

// What a family takes for a word's letters.
struct Letters {
  static bool is(const Char& c) { return c.is(kLetter); }
};
struct LettersAndMarks {
  static bool is(const Char& c) { return c.is(kLetter | kMark); }
};
struct LettersMarksAndJoiners {
  static bool is(const Char& c) { return c.is(kLetter | kMark) || c.value == 0x200C || c.value == 0x200D; }
};

// What may follow punctuation in its piece.
enum class After { kNothing, kOneNewline, kNewlines, kNewlinesAndSlashes };

//  ?[^\s\p{L}\p{N}]+ and what follows it, else white space: what many expressions share after words and numbers.
// kWord: the classes that punctuation ends at.
template <After kAfter, int kWord = kLetter>
const char* other_or_space(const char* p, const char* end, const Char& first) {
  const char* q = first.value == ' ' ? p + 1 : p;
  const char* after = run_without(kSpace | kWord | kNumber, q, end);
  if (after == q) return space_with_newlines(p, end);
  switch (kAfter) {
    case After::kNothing:
      return after;
    case After::kOneNewline:
      return up_to_n(1, kNewline, after, end);
    case After::kNewlines:
      return run_of(kNewline, after, end);
    case After::kNewlinesAndSlashes:
      return run(after, end, [](const Char& c) { return c.is(kNewline) || c.value == '/'; });
  }
  return after;
}

constexpr int kAllDigits = 1 << 30;

template <int kDigits, typename Word = Letters, bool kContractions = true, After kAfter = After::kNewlines,
          int kNoPunctuation = kLetter>
const char* llama3_like(const char* p, const char* end) {
  if (kContractions && *p == '\'') {
    if (const char* q = contraction(p, end, true); q != p) return q;
  }
  Char c = at(p, end);
  if (Word::is(c)) return run(p + c.len, end, Word::is);
  if (c.is(kNumber)) return up_to_n(kDigits, kNumber, p, end);
  if (!c.is(kNewline)) {
    const char* q = run(p + c.len, end, Word::is);
    if (q > p + c.len) return q;
  }
  return other_or_space<kAfter, kNoPunctuation>(p, end, c);
}

// Letters by their case: marks and uncased letters are both.
struct Cased {
  static bool upper(const Char& c) { return c.is(kUpperLike); }
  static bool lower(const Char& c) { return c.is(kLowerLike); }
};
bool is_han(const Char& c) { return unicode::has(c.value, unicode::kHan); }
struct CasedWithoutHan {
  static bool upper(const Char& c) { return c.is(kUpperLike) && !is_han(c); }
  static bool lower(const Char& c) { return c.is(kLowerLike) && !is_han(c); }
};

// U*V+ from p (U like an upper-case letter, V like a lower-case one), or null. The expression gives back what U* took
// until a V is found: the last character of the run that is both.
template <typename Case>
const char* lower_word(const char* p, const char* end) {
  const char* after_both = nullptr;
  const char* q = p;
  while (q < end) {
    Char c = at(q, end);
    if (!Case::upper(c)) break;
    q += c.len;
    if (Case::lower(c)) after_both = q;
  }
  const char* after = run(q, end, Case::lower);
  return after > q ? after : after_both;
}
// U+V* from p, or null.
template <typename Case>
const char* upper_word(const char* p, const char* end) {
  const char* q = run(p, end, Case::upper);
  return q == p ? nullptr : run(q, end, Case::lower);
}

template <bool kContractions, int kDigits, typename Case = Cased, After kAfter = After::kNewlinesAndSlashes>
const char* cased_like(const char* p, const char* end) {
  Char c = at(p, end);
  const char* prefixed = c.is(kLetter | kNumber | kNewline) ? nullptr : p + c.len;
  const char* q = prefixed ? lower_word<Case>(prefixed, end) : nullptr;
  if (!q) q = lower_word<Case>(p, end);
  if (!q && prefixed) q = upper_word<Case>(prefixed, end);
  if (!q) q = upper_word<Case>(p, end);
  if (q) return kContractions ? contraction(q, end, true) : q;
  if (c.is(kNumber)) return up_to_n(kDigits, kNumber, p, end);
  return other_or_space<kAfter>(p, end, c);
}

// The match of deepseek-v3's large expression at p, or null; digits never match. kRuns: line ends go with what stands
// before them, else each is a piece.
template <bool kRuns>
const char* deepseek3_match(const char* p, const char* end) {
  Char c = at(p, end);
  const char* after = p + c.len;
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
  const char* r = c.value == ' ' ? after : p;
  const char* s = run_of(kPunct | kSymbol, r, end);
  if (s > r) return kRuns ? run_of(kNewline, s, end) : s;
  if (!c.is(kSpace)) return nullptr;
  if (kRuns) return space_with_newlines(p, end);
  return c.is(kNewline) ? after : space_run(p, end);
}
template <bool kRuns>
const char* deepseek3_like(const char* p, const char* end) {
  if (const char* after = deepseek3_match<kRuns>(p, end)) return after;
  for (p += at(p, end).len; p < end; p += at(p, end).len) {
    if (deepseek3_match<kRuns>(p, end)) break;
  }
  return p;
}

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
const char* minicpm5(const char* p, const char* end) { return llama3_like<kAllDigits>(p, end); }
const char* k2_horizon(const char* p, const char* end) { return llama3_like<3, LettersMarksAndJoiners>(p, end); }
const char* qwen2(const char* p, const char* end) { return llama3_like<1>(p, end); }
const char* qwen35(const char* p, const char* end) {
  return llama3_like<1, LettersAndMarks, true, After::kNewlines, kLetter | kMark>(p, end);
}
const char* seed_coder(const char* p, const char* end) {
  return llama3_like<1, Letters, true, After::kNothing>(p, end);
}
const char* ufakzeka(const char* p, const char* end) { return llama3_like<1, Letters, false>(p, end); }

const char* gpt4o(const char* p, const char* end) { return cased_like<true, 3>(p, end); }
const char* youtu(const char* p, const char* end) { return cased_like<true, 1>(p, end); }
const char* tekken(const char* p, const char* end) { return cased_like<false, 1>(p, end); }
const char* kimi_k2(const char* p, const char* end) {
  if (is_han(at(p, end))) return run(p, end, is_han);
  return cased_like<true, 3, CasedWithoutHan, After::kNewlines>(p, end);
}

const char* deepseek3(const char* p, const char* end) { return deepseek3_like<true>(p, end); }
const char* spark25(const char* p, const char* end) { return deepseek3_like<false>(p, end); }

// A word is (?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+: letters with their marks, single spaces between them included.
const char* exaone_moe(const char* p, const char* end) {
  if (*p == '\'') {
    if (const char* q = contraction(p, end, true); q != p) return q;
  }
  Char c = at(p, end);
  if (c.is(kNumber)) return p + c.len;
  const char* word = c.is(kLetter | kNewline) ? p : p + c.len;
  if (word < end && at(word, end).is(kLetter)) {
    for (;; ++word) {
      word = run_of(kLetter | kMark, word, end);
      if (end - word < 2 || *word != ' ' || !at(word + 1, end).is(kLetter)) return word;
    }
  }
  return other_or_space<After::kOneNewline>(p, end, c);
}

}  // namespace ibid::split
