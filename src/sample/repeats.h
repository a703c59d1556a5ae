// Earlier occurrences of the end of a history, for no-repeat n-grams and DRY. In time proportional to the history,
// whatever it holds.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace ibid {

// z[i] for i in [1, n): how many of at(i), at(i + 1), ... equal at(0), at(1), ..., up to at(n - 1); z[0] is 0. The Z
// algorithm (Gusfield, Algorithms on Strings, Trees and Sequences, section 1.4): at() is called at most 4 n times. Over
// a history from its end, z[i] is how long a repeat the token after position i would extend.
template <typename At>
void repeat_lengths(size_t n, const At& at, std::vector<int32_t>& z) {
  z.assign(n, 0);
  for (size_t i = 1, left = 0, right = 0; i < n; ++i) {  // [left, right) is the rightmost stretch known to be equal
    size_t len = i < right ? std::min(right - i, static_cast<size_t>(z[i - left])) : 0;
    if (i + len >= right) {
      while (i + len < n && at(len) == at(i + len)) ++len;
    }
    z[i] = static_cast<int32_t>(len);
    if (i + len > right) left = i, right = i + len;
  }
}

}  // namespace ibid
