// A JSON Schema as a union of shapes. A shape is a conjunction of constraints on values by their type; the logic of
// keywords (allOf, anyOf, oneOf, not, if, $ref, dependent*, unevaluated*) is resolved before, so that a grammar can be
// written from a shape. Members and items are still conjunctions of schemas.
#pragma once

#include <compare>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "sample/grammar/code_dfa.h"
#include "sample/grammar/schema_numbers.h"
#include "sample/grammar/schema_value.h"

namespace ibid::grammar {

// A schema, or its negation.
struct Literal {
  const Value* schema = nullptr;
  bool is_negated = false;
  bool operator==(const Literal&) const = default;
  // In the order of the document, so that the result depends on nothing else.
  std::strong_ordering operator<=>(const Literal& other) const {
    if (const auto order = schema->place <=> other.schema->place; order != 0) return order;
    if (const auto order = schema <=> other.schema; order != 0) return order;  // of no document
    return is_negated <=> other.is_negated;
  }
};
using Conjunction = std::vector<Literal>;  // ascending; empty: anything
Conjunction one(const Value& schema, bool is_negated = false);
Conjunction both(const Conjunction& a, const Conjunction& b);

enum TypeBit : uint8_t {
  kNullBit = 1,
  kFalseBit = 2,
  kTrueBit = 4,
  kNumberBit = 8,
  kStringBit = 16,
  kArrayBit = 32,
  kObjectBit = 64,
  kAllTypes = 127,
};

uint8_t bit_of(const Value& value);

using Pattern = std::shared_ptr<const CodeDfa>;

// Data that many shapes share: copies share one object until one of them is changed.
template <typename T>
class Shared {
 public:
  Shared(T value) : value_(std::make_shared<const T>(std::move(value))) {}
  operator const T&() const { return *value_; }
  const T* operator->() const { return value_.get(); }
  template <typename Change>
  void change(Change&& change) {
    T changed = *value_;
    change(changed);
    value_ = std::make_shared<const T>(std::move(changed));
  }

 private:
  std::shared_ptr<const T> value_;
};

// `items` and its relatives of one schema object.
struct ArrayKeywords {
  std::vector<Conjunction> prefix;
  Conjunction rest;
  bool has_rest = false;  // all items are evaluated
  bool evaluates = true;
  Held held = {};
};
struct ContainsKeyword {
  Conjunction what;
  uint32_t min = 1, max = kUnbounded;
  uint32_t from = 0;  // items before it do not count
};
// `properties` and its relatives of one schema object.
struct ObjectKeywords {
  std::vector<std::pair<std::string, Conjunction>> properties;
  std::vector<std::pair<Pattern, Conjunction>> patterns;
  Conjunction additional;
  bool has_additional = false;  // all members are evaluated
  bool evaluates = true;
  Held held = {};
};
// At least one member has such a name and such a value.
struct SomeMember {
  Pattern names;
  Conjunction value;
};

struct Shape {
  uint8_t types = kAllTypes;
  NumberRules numbers;
  uint32_t min_length = 0, max_length = kUnbounded;
  std::vector<Pattern> patterns;
  std::vector<std::string> excluded_strings;
  std::vector<Shared<ArrayKeywords>> arrays;
  uint32_t min_items = 0, max_items = kUnbounded;
  std::vector<ContainsKeyword> contains;
  const Value* unique = nullptr;  // the schema that requires it
  std::vector<Shared<ObjectKeywords>> objects;
  std::vector<std::string> required;  // in the order of the schema
  uint32_t min_members = 0, max_members = kUnbounded;
  std::vector<Pattern> names;
  std::vector<SomeMember> some;
  std::optional<std::vector<const Value*>> values;  // one of them
  Held held = {};

  static Shape only(uint8_t types) {
    Shape made;
    made.types = types;
    return made;
  }
  void meet(const Shape& other);
  void require(const std::string& name);
  // Its approximate heap memory, without shared parts.
  int64_t bytes() const;
  // Removes types whose limits leave no value; false if no type is left.
  bool settle();

 private:
  bool must_have_what_it_may_not() const;
};
using Shapes = std::vector<Shape>;  // their union

Shapes alone(Shape shape);
// Objects in which a member of this name, if present, is valid under the schemas.
Shape member_is(const std::string& name, Conjunction value);
// Objects without a member of this name.
Shape forbidden_member(const std::string& name);

}  // namespace ibid::grammar
