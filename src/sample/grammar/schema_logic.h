// SchemaLogic: turns schemas into shapes. A schema's negation is the union of its keywords' negations, so `not`,
// `oneOf`, `if` and what they imply are exact if all that they reach is; fuel and a limit on their number bound the
// unions.
#pragma once

#include <algorithm>
#include <map>
#include <set>

#include "sample/grammar/json_schema.h"
#include "sample/grammar/schema_document.h"
#include "sample/grammar/schema_shape.h"

namespace ibid::grammar {

// Steps, beyond what copying or moving any shape costs.
inline int64_t cost_of_copying(int64_t bytes) {
  constexpr int64_t kFew = 4096;
  return std::max<int64_t>(bytes - kFew, 0) / 32;
}

class SchemaLogic {
 public:
  SchemaLogic(const SchemaDocument& document, const SchemaOptions& options, Fuel& fuel, SchemaReport* report)
      : document_(document), options_(options), fuel_(fuel), held_(fuel), report_(report) {}

  // The values that are valid under all of the schemas. Clearly empty shapes are left out.
  Result<Shapes> shapes(const Conjunction& conjunction);
  Result<Shapes> shapes(Literal literal);
  bool is_false(const Conjunction& conjunction) const;
  // Whether a value is of a shape, or valid under all of the schemas.
  Result<bool> holds(const Shape& shape, const Value& value);
  Result<bool> holds(const Conjunction& conjunction, const Value& value);
  // The same for one of the shape's own values, which is not looked up among them.
  Result<bool> fits(const Shape& shape, const Value& value);
  // The schemas of a member of this name; nothing if there may be no such member.
  Result<std::optional<Conjunction>> member(const Shape& shape, const std::string& name);
  static Conjunction item(const Shape& shape, size_t index);

  // A keyword that cannot be enforced: an error if strict, else a line of the report.
  Status cannot(const Value* schema, std::string_view keyword, std::string_view why);
  const SchemaDocument& document() const { return document_; }
  const SchemaOptions& options() const { return options_; }
  Fuel& fuel() const { return fuel_; }

 private:
  static constexpr size_t kMaxShapes = 256;
  static constexpr int kMaxLogicDepth = 120;

  Result<Shapes> read(const Value& schema);
  Result<Shapes> read_negated(const Value& schema);
  Result<bool> holds_any(const Conjunction& conjunction, const Value& value);
  // For keywords that hold schemas: whether the value has the right form.
  Status check_keyword(const Value& schema, const std::string& key, const Value& value) const;
  Status read_keyword(const Value& schema, const std::string& key, const Value& value, Shapes& all);
  Status read_simple(const Value& schema, const std::string& key, const Value& value, Shape& shape, bool& is_known);
  Status read_types(const Value& schema, const Value& value, Shape& shape);
  Result<Shapes> negated_keyword(const Value& schema, const std::string& key, const Value& value);
  // `own`: the shape of the keyword itself.
  Result<Shapes> negated_simple(const std::string& key, const Value& value, const Shape& own);
  Result<Shapes> any_of(const Value& list);
  Result<Shapes> one_of(const Value& list);
  Result<Shapes> dependent(const Value& value);
  Status read_arrays(const Value& schema, Shape& shape);
  Status read_objects(const Value& schema, Shape& shape);
  Status read_unevaluated(const Value& schema, Shapes& all);
  Result<Shapes> meet(const Shapes& a, const Shapes& b);
  Status add(Shapes& all, Shape shape);
  Status append(Shapes& all, Shapes more);
  Status narrow(Shapes& all, Result<Shapes> by);  // all or nothing
  Status narrow(Shapes& all, const Shape& by);    // out of fuel: a part of it
  Result<bool> is_empty(const Shape& shape, int depth);
  Result<bool> are_disjoint(const Value& a, const Value& b);
  // anyOf under unevaluated*: whether several alternatives that evaluate may hold at once.
  Result<bool> may_evaluate_together(const Value& list);
  Result<Pattern> pattern(std::string_view regex, bool is_negated);
  Result<Pattern> names_of(const Conjunction& conjunction);
  Result<Pattern> unknown_names(const ObjectKeywords& keywords);
  Result<uint32_t> count(const Value& value, const std::string& key) const;
  Result<ObjectKeywords> object_keywords(const Value& schema);
  ArrayKeywords array_keywords(const Value& schema) const;
  Error no_schema(const Value& schema, const std::string& key, std::string_view what) const;

  const SchemaDocument& document_;
  const SchemaOptions& options_;
  Fuel& fuel_;
  Held held_;  // by what is known, but for shapes
  SchemaReport* report_;
  std::map<Literal, Shapes> known_;
  std::set<Literal> open_;
  bool leads_back_ = false;  // an open schema was requested
  std::map<std::pair<std::string, bool>, Pattern> regexes_;
  std::map<const CodeDfa*, bool> formats_;  // whether a format's expression is exact
  // Whether what is read has an anyOf of which some evaluate together and are held one at a time; and which it is of.
  bool loses_ = false;
  std::set<Literal> losing_;
  int depth_ = 0;
};

}  // namespace ibid::grammar
