#include "cli/options/suggestion.h"

#include <algorithm>
#include <vector>

namespace ibid::cli {
namespace {

constexpr size_t kLongest = 64;  // a longer word is no slip of a finger

// Damerau's distance, of two words of at most kLongest bytes.
size_t distance(std::string_view a, std::string_view b) {
  std::vector<std::vector<size_t>> d(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) d[i][0] = i;
  for (size_t j = 0; j <= b.size(); ++j) d[0][j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t change = d[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      d[i][j] = std::min({d[i - 1][j] + 1, d[i][j - 1] + 1, change});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
    }
  }
  return d[a.size()][b.size()];
}

}  // namespace

std::string nearest(std::string_view word, std::span<const std::string> known) {
  std::string best;
  size_t least = std::max<size_t>(1, word.size() / 3) + 1;
  if (word.empty() || word.size() > kLongest) return best;
  for (const std::string& other : known) {
    if (other.size() > kLongest) continue;
    // What was begun and not ended is near, too.
    const bool is_begun = word.size() >= 3 && other.starts_with(word);
    const size_t d = is_begun ? 1 : distance(word, other);
    if (d < least) least = d, best = other;
  }
  return best;
}

}  // namespace ibid::cli
