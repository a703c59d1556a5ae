// Regular expressions as ECMA-262 has them (with the u flag's classes), as regular sets: their cost is that of their
// automaton, without backtracking. Laziness changes nothing. What is not regular (back-references, look-around but for
// a leading (?!...), \b) is refused by name.
#pragma once

#include <string_view>

#include "sample/grammar/code_dfa.h"

namespace ibid::grammar {

// The texts that contain a match, as `pattern` of JSON Schema; or those that match as a whole.
enum class RegexUse { kSearch, kWhole };
Result<CodeDfa> read_regex(std::string_view regex, RegexUse use, Fuel& fuel);

// The root of `grammar`: the answer matches the expression as a whole (^ and $ change nothing at the ends). Any size:
// parts without a small deterministic automaton stay as written.
Status read_regex(std::string_view regex, Grammar& grammar);

// The same as an expression within a grammar.
Result<ExprId> regex_expression(std::string_view regex, Grammar& grammar);

}  // namespace ibid::grammar
