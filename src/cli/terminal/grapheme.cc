#include "cli/terminal/grapheme.h"

#include <cwchar>

namespace ibid::cli {
namespace {

constexpr wchar_t kJoiner = 0x200D;

bool is_flag_letter(wchar_t c) { return c >= 0x1F1E6 && c <= 0x1F1FF; }
bool is_skin(wchar_t c) { return c >= 0x1F3FB && c <= 0x1F3FF; }
bool is_hangul(wchar_t c, wchar_t first, wchar_t last) { return c >= first && c <= last; }

// Syllables of several letters: their vowels and finals.
bool joins_hangul(wchar_t before, wchar_t c) {
  const bool is_vowel = is_hangul(c, 0x1160, 0x11A7), is_final = is_hangul(c, 0x11A8, 0x11FF);
  const bool is_syllable = is_hangul(before, 0x1100, 0x11FF) || is_hangul(before, 0xAC00, 0xD7A3);
  return is_syllable && (is_vowel || is_final);
}

bool takes_no_column(wchar_t c) { return c >= 0x80 && wcwidth(c) == 0; }

// Whether text[at] belongs to what is before it.
bool goes_on(std::wstring_view text, size_t at) {
  const wchar_t c = text[at], before = text[at - 1];
  if (before == '\n' || before == '\t') return false;
  if (takes_no_column(c) || is_skin(c) || before == kJoiner || joins_hangul(before, c)) return true;
  if (!is_flag_letter(c) || !is_flag_letter(before)) return false;
  size_t begin = at;
  while (begin > 0 && is_flag_letter(text[begin - 1])) --begin;
  return (at - begin) % 2 == 1;
}

}  // namespace

size_t last_cluster(std::wstring_view text) {
  if (text.empty()) return 0;
  size_t at = text.size() - 1;
  while (at > 0 && goes_on(text, at)) --at;
  return text.size() - at;
}

size_t first_cluster(std::wstring_view text) {
  if (text.empty()) return 0;
  size_t at = 1;
  while (at < text.size() && goes_on(text, at)) ++at;
  return at;
}

bool has_joined(std::wstring_view text) {
  for (size_t at = 1; at < text.size(); ++at) {
    if (goes_on(text, at)) return true;
  }
  return false;
}

}  // namespace ibid::cli
