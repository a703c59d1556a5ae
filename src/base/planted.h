// PLANTED(name): a fault on purpose, for the test that shows that tests would find it (tests/planted/,
// docs/developers/planted_faults.md). False, and nothing, in every build but that test's.
#pragma once

#include <string_view>

namespace ibid {

#ifdef IBID_PLANTED
bool is_planted(std::string_view name);
#define PLANTED(name) ::ibid::is_planted(name)
#else
#define PLANTED(name) false
#endif

}  // namespace ibid
