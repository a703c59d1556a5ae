// llguidance's `x-guidance` at the root of a schema (its docs/json_schema.md): how texts are spelled, and which
// keywords may be ignored. guidance sends it with every schema, because it matches an answer's parts by it. No option
// allows a text that is not JSON: of the separators and blanks only those are used that JSON allows there and that have
// a bounded length, so that models end.
#pragma once

#include "sample/grammar/schema_logic.h"

namespace ibid::grammar {

struct JsonSpelling {
  ExprId space = kNoExpr;             // allowed blanks; kNoExpr: as in SchemaOptions::space
  ExprId comma = kNoExpr;             // what stands before those after it; kNoExpr: ","
  ExprId colon = kNoExpr;             // the same
  bool escapes_what_it_must = false;  // in free strings, and only that
};

// The members that change how the schema is read: `lenient`, `coerce_one_of`.
SchemaOptions guided(const SchemaOptions& options, const Value& root);

// The others. A member that cannot be enforced is refused or reported as a keyword is, as "x-guidance/NAME".
Result<JsonSpelling> guided_spelling(SchemaLogic& logic, Grammar& grammar);

}  // namespace ibid::grammar
