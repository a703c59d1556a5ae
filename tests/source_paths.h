// Where the tree and its build lie, without a trailing slash. The strings stand in one generated source: were they on
// every test's command line, no two clones could share what the compiler's cache holds.
#pragma once

#include <string>

namespace ibid {

std::string source_dir();
std::string build_dir();

}  // namespace ibid
