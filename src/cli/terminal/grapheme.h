// What a reader takes for one character, of several code points: a letter with its accents, a family of emoji, a flag.
// By the rules of Unicode's annex 29 that matter where somebody types, without its tables: what takes no column of its
// own, what stands after a joiner, and regional indicators in pairs belong to what is before them.
#pragma once

#include <cstddef>
#include <string_view>

namespace ibid::cli {

// Code points of the last one of `text`; 0 of an empty text.
size_t last_cluster(std::wstring_view text);
size_t first_cluster(std::wstring_view text);
// Whether any has several.
bool has_joined(std::wstring_view text);

}  // namespace ibid::cli
