// The sets of code points that expressions have names for.
#pragma once

#include <optional>
#include <string_view>

#include "sample/grammar/code_set.h"

namespace ibid::grammar {

// \d, \w and \s of ECMA-262.
CodeSet regex_digits();
CodeSet regex_words();
CodeSet regex_spaces();
// What stands between the braces of \p{...}: a general category by any of its names, Any, ASCII. Nothing for others.
std::optional<CodeSet> regex_property(std::string_view name);

}  // namespace ibid::grammar
