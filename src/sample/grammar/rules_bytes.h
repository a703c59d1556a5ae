// Rules as bytes: the form in which a record keeps a grammar that has no source text. Reading returns what was written,
// rule for rule and expression for expression, and masks of both are the same.
#pragma once

#include <string>
#include <string_view>

#include "sample/grammar/grammar.h"

namespace ibid::grammar {

// Without the names of rules and the notes.
std::string write_rules(const Grammar& grammar);
// Bytes from outside: they are refused where compiling them would exceed the grammar's fuel. `grammar` is empty.
Status read_rules(std::string_view bytes, Grammar& grammar);

}  // namespace ibid::grammar
