// What llguidance's `x-guidance` says at the root of a schema (its docs/json_schema.md): how texts are to be spelled,
// and what may be passed over. guidance sends it with every schema, since it finds an answer's parts again by it.
// Nothing of it makes a text that is no JSON: of separators' and blanks' texts those are taken that JSON may have
// there, and of these the ones of a bounded length, so that models end.
#pragma once

#include "sample/grammar/schema_logic.h"

namespace ibid::grammar {

struct JsonSpelling {
  ExprId space = kNoExpr;             // where blanks may stand; kNoExpr: as SchemaOptions::space says
  ExprId comma = kNoExpr;             // what stands before those after it; kNoExpr: ","
  ExprId colon = kNoExpr;             // the same
  bool escapes_what_it_must = false;  // in free strings, and nothing else
};

// The members that decide about the reading of the schema: `lenient`, `coerce_one_of`.
SchemaOptions guided(const SchemaOptions& options, const Value& root);

// The others. What cannot be held is refused or told as a keyword is, as "x-guidance/NAME".
Result<JsonSpelling> guided_spelling(SchemaLogic& logic, Grammar& grammar);

}  // namespace ibid::grammar
