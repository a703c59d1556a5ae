// How many cases property suites draw that have many: a quarter of them where `./runtests` and `./runtests --slow` run,
// all of them by hand (`./runtests --by-hand property`, which sets IBID_ALL_CASES). The kinds of cases are the same.
#pragma once

#include <cstdlib>
#include <string_view>

namespace ibid::testing {

inline bool draws_all_cases() {
  const char* asked = std::getenv("IBID_ALL_CASES");
  return asked != nullptr && std::string_view(asked) == "1";
}
inline int n_cases(int all) { return draws_all_cases() ? all : (all + 3) / 4; }

}  // namespace ibid::testing
