// Compiles JSON Schema (2020-12; drafts 4 to 7, 2019-09 and OpenAPI 3.0 where they are spelled otherwise) to a grammar
// of the valid JSON texts. Sound: every text of the grammar is valid. Complete by value: each valid value has a
// spelling in it, members in the schema's order, except for `narrowed` and limits of spelling (digits, depth). A
// keyword that cannot be enforced is refused by its name and place if `is_strict`, else listed in `ignored`, or,
// without a report, in the grammar's notes. docs/users/structured.md has the table of keywords.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "sample/grammar/grammar.h"

namespace ibid::grammar {

enum class JsonSpace {
  kFlexible,  // none, a space, or one or two ends of lines with up to 20 blanks: compact and indented texts
  kCompact,   // none
};

struct SchemaOptions {
  bool is_strict = true;
  bool holds_formats = true;    // else `format` is an annotation, as the standard has it
  bool coerces_one_of = false;  // a `oneOf` that cannot be enforced is reported and read as `anyOf`, strict or not
  JsonSpace space = JsonSpace::kFlexible;
};

struct SchemaReport {
  std::vector<std::string> ignored;  // sentences that name a keyword and its place
  size_t most = 100;                 // at most this many of them; further ones are dropped
};

// The rule of the valid texts, without surrounding blanks.
Result<RuleId> read_json_schema(std::string_view schema, const SchemaOptions& options, Grammar& grammar,
                                SchemaReport* report = nullptr);

// Any JSON value; any JSON object.
RuleId any_json(Grammar& grammar, JsonSpace space);
RuleId any_json_object(Grammar& grammar, JsonSpace space);

}  // namespace ibid::grammar
