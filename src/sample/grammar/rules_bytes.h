// Rules as bytes: a grammar that no text of a language says, as a record keeps it. What is read from bytes is what was
// written, rule for rule and expression for expression, and masks of both are the same.
#pragma once

#include <string>
#include <string_view>

#include "sample/grammar/grammar.h"

namespace ibid::grammar {

// Without the names of rules and the notes.
std::string write_rules(const Grammar& grammar);
// Bytes from outside: what they ask of the compiler is within the grammar's fuel, or they are refused. `grammar` is
// empty.
Status read_rules(std::string_view bytes, Grammar& grammar);

}  // namespace ibid::grammar
