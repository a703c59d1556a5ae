// How many cases the slow property suites draw: a quarter of them where `./runtests --slow` runs, all of them by hand
// (`./runtests --by-hand property`, which sets IBID_ALL_CASES). The kinds of cases are the same.
#pragma once

#include <cstdlib>
#include <string_view>

namespace ibid::testing {

inline int n_cases(int all) {
  const char* asked = std::getenv("IBID_ALL_CASES");
  return asked != nullptr && std::string_view(asked) == "1" ? all : (all + 3) / 4;
}

}  // namespace ibid::testing
