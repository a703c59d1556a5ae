// Regular expressions as ECMA-262 has them (with the u flag's classes), as regular sets: whatever backtracking would
// make of them, they cost their automaton. Laziness changes nothing. What is not regular (back-references, look-around
// but for a leading (?!...), \b) is refused by name.
#pragma once

#include <string_view>

#include "sample/grammar/code_dfa.h"

namespace ibid::grammar {

// The texts in which the expression is found, as `pattern` of JSON Schema means it; or those that it is of as a whole.
enum class RegexUse { kSearch, kWhole };
Result<CodeDfa> read_regex(std::string_view regex, RegexUse use, Fuel& fuel);

// The root of `grammar`: the answer is, as a whole, of the expression (^ and $ change nothing at the ends). Of any
// size: what has no small deterministic automaton stays as it is written.
Status read_regex(std::string_view regex, Grammar& grammar);

// The same as an expression within a grammar.
Result<ExprId> regex_expression(std::string_view regex, Grammar& grammar);

}  // namespace ibid::grammar
