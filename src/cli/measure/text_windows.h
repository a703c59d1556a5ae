// How a text that is longer than a context is scored: in windows that overlap, each token once.
#pragma once

#include <cstdint>
#include <vector>

namespace ibid::cli {

struct TextWindow {
  int64_t begin = 0, end = 0;  // tokens of the text
  int64_t first_scored = 0;    // of the text; those before it are what it is predicted from
};

// Of n tokens, n >= 2, in a context of `context_len`; `stride` of them are scored in each window but the first, which
// scores all but its first. 1 <= stride < context_len.
std::vector<TextWindow> text_windows(int64_t n, int64_t context_len, int64_t stride);

}  // namespace ibid::cli
