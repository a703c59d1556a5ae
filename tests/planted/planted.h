// PLANTED(name): whether the fault of that name is switched on, in the copies of the product's sources that plant.py
// writes for planted_suite. Nothing else includes this.
#pragma once

#include <string_view>

namespace ibid {
bool is_planted(std::string_view name);
}  // namespace ibid

#define PLANTED(name) ::ibid::is_planted(name)
