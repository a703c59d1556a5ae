#include "cli/measure/text_windows.h"

#include <algorithm>

namespace ibid::cli {

std::vector<TextWindow> text_windows(int64_t n, int64_t context_len, int64_t stride) {
  std::vector<TextWindow> out = {{0, std::min(n, context_len), 1}};
  while (out.back().end < n) {
    const int64_t first = out.back().end, end = std::min(n, first + stride);
    out.push_back({std::max<int64_t>(0, end - context_len), end, first});
  }
  return out;
}

}  // namespace ibid::cli
