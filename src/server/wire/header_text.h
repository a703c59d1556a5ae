// The values of headers, as RFC 9110 spells them: blanks around a value are none of it (5.5), and in most of them the
// case of letters has no meaning.
#pragma once

#include <algorithm>
#include <cctype>
#include <string>
#include <string_view>

namespace ibid {

inline std::string lower_case(std::string_view text) {
  std::string lower(text);
  std::ranges::transform(lower, lower.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return lower;
}

inline std::string_view without_blanks(std::string_view text, std::string_view blanks = " \t") {
  const size_t begin = text.find_first_not_of(blanks);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(blanks) + 1 - begin);
}

}  // namespace ibid
