// JSON Schema (2020-12; drafts 4 to 7, 2019-09 and OpenAPI 3.0 as far as they spell it otherwise) to a grammar of the
// JSON texts that are valid. Sound: every text of the grammar is valid. Complete by value: each valid value has a
// spelling in it, members in the schema's order, unless `narrowed` or a limit of spelling (digits, depth) says
// otherwise. A keyword that cannot be held is refused by its name and place where `is_strict`, else listed in
// `ignored`, or where there is no report among the grammar's notes. docs/users/structured.md has the table of keywords.
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
  bool coerces_one_of = false;  // a `oneOf` that cannot be held is told and read as `anyOf`, strict or not
  JsonSpace space = JsonSpace::kFlexible;
};

struct SchemaReport {
  std::vector<std::string> ignored;  // sentences that name a keyword and its place
  size_t most = 100;                 // so many of them; what is beyond is not told
};

// The rule of the valid texts, which lie in no space.
Result<RuleId> read_json_schema(std::string_view schema, const SchemaOptions& options, Grammar& grammar,
                                SchemaReport* report = nullptr);

// Any JSON value; any JSON object.
RuleId any_json(Grammar& grammar, JsonSpace space);
RuleId any_json_object(Grammar& grammar, JsonSpace space);

}  // namespace ibid::grammar
