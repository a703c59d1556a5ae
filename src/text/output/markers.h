// Markers in a growing text: where the first of them is, or may begin. Results depend on the bytes alone, not on how
// they were cut.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace ibid::markers {

inline bool is_blank(char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }
// Bytes of white space that the text begins with.
inline size_t n_blank(std::string_view text) {
  size_t n = 0;
  while (n < text.size() && is_blank(text[n])) ++n;
  return n;
}

// The match of a text that must begin with a marker.
struct Fit {
  int which = -1;         // the longest that the text begins with
  size_t len = 0;         // its bytes
  bool may_grow = false;  // the text is the beginning of a longer one
  bool is_open() const { return may_grow; }
  bool is_whole() const { return !may_grow && which >= 0; }
};

inline Fit fit(std::string_view text, std::span<const std::string> markers) {
  Fit out;
  for (size_t i = 0; i < markers.size(); ++i) {
    const std::string& m = markers[i];
    if (text.starts_with(m)) {
      if (out.which < 0 || m.size() > out.len) out.which = static_cast<int>(i), out.len = m.size();
    } else if (std::string_view(m).starts_with(text)) {
      out.may_grow = true;
    }
  }
  return out;
}

// The first place where one begins, or may: `which` < 0 then, and where there is none `at` is the text's end.
struct Found {
  size_t at = 0;
  int which = -1;
};

inline Found find(std::string_view text, std::span<const std::string> markers) {
  bool begins[256] = {};
  for (const std::string& m : markers) begins[static_cast<unsigned char>(m[0])] = true;
  for (size_t i = 0; i < text.size(); ++i) {
    if (!begins[static_cast<unsigned char>(text[i])]) continue;
    const Fit here = fit(text.substr(i), markers);
    if (here.is_open()) return {i, -1};
    if (here.is_whole()) return {i, here.which};
  }
  return {text.size(), -1};
}

// Bytes of the marker that the text begins with, if it is one of the first n; else 0.
inline size_t skip(std::string_view text, std::span<const std::string> markers, size_t n) {
  const Fit here = fit(text, markers.first(n));
  return here.is_whole() ? here.len : 0;
}

}  // namespace ibid::markers
