// The constraints of keywords that need no other schema; and the checks of keywords that hold schemas.
#include <algorithm>

#include "base/quoted.h"
#include "sample/grammar/regex.h"
#include "sample/grammar/schema_formats.h"
#include "sample/grammar/schema_logic.h"

namespace ibid::grammar {
namespace {

uint8_t bits_of_type(const std::string& name) {
  if (name == "null") return kNullBit;
  if (name == "boolean") return kFalseBit | kTrueBit;
  if (name == "number" || name == "integer") return kNumberBit;
  if (name == "string") return kStringBit;
  if (name == "array") return kArrayBit;
  if (name == "object") return kObjectBit;
  return 0;
}

}  // namespace

Status SchemaLogic::check_keyword(const Value& schema, const std::string& key, const Value& value) const {
  if (key == "$ref" || key == "$dynamicRef" || key == "$recursiveRef") {
    if (!value.is(Value::Kind::kString)) return no_schema(schema, key, "a string");
  } else if (key == "allOf" || key == "anyOf" || key == "oneOf") {
    if (!value.is(Value::Kind::kArray) || value.items.empty()) return no_schema(schema, key, "a list of schemas");
  } else if (key == "properties" || key == "patternProperties" || key == "dependentRequired" ||
             key == "dependentSchemas" || key == "dependencies") {
    if (!value.is_object()) return no_schema(schema, key, "an object");
  }
  return {};
}

Result<uint32_t> SchemaLogic::count(const Value& value, const std::string& key) const {
  if (!value.is(Value::Kind::kNumber)) return invalid(in_quotes(key) + " must be a number.");
  const Decimal number = value.number();
  if (number.is_negative || !number.is_integer())
    return invalid(in_quotes(key) + " must be a whole number of at least 0.");
  if (number.is_huge() || number.whole().size() > 9) return kUnbounded - 1;
  return static_cast<uint32_t>(std::stoul(number.whole()));
}

Status SchemaLogic::read_types(const Value& schema, const Value& value, Shape& shape) {
  bool has_integer = false, has_number = false;
  shape.types = 0;
  for (const Value& name : value.as_list()) {
    const uint8_t bits = name.is(Value::Kind::kString) ? bits_of_type(name.text) : 0;
    if (bits == 0) return no_schema(schema, "type", "the name of a type, or a list of them");
    has_integer |= name.text == "integer";
    has_number |= name.text == "number";
    shape.types |= bits;
  }
  const Value* nullable = schema.find("nullable");  // OpenAPI 3.0
  if (nullable != nullptr && nullable->is(Value::Kind::kTrue)) shape.types |= kNullBit;
  shape.numbers.is_integer = has_integer && !has_number;
  return {};
}

// Keywords that one shape holds.
Status SchemaLogic::read_simple(const Value& schema, const std::string& key, const Value& value, Shape& shape,
                                bool& is_known) {
  if (key == "type") return read_types(schema, value, shape);
  if (key == "enum" || key == "const") {
    if (key == "enum" && !value.is(Value::Kind::kArray)) return no_schema(schema, key, "a list");
    std::vector<const Value*> values;
    if (!fuel_.has_room(block(2 * (value.items.size() + 2) * sizeof(const Value*)))) return out_of_fuel();
    values.reserve(value.items.size() + 2);
    if (key == "const") values.push_back(&value);
    for (const Value& v : value.items)
      if (key == "enum") values.push_back(&v);
    const Value* nullable = schema.find("nullable");
    static const Value null{Value::Kind::kNull};
    if (key == "enum" && nullable != nullptr && nullable->is(Value::Kind::kTrue)) values.push_back(&null);
    shape.values = std::move(values);
    shape.types = 0;
    for (const Value* v : *shape.values) shape.types |= bit_of(*v);
    return {};
  }
  if (key == "minimum" || key == "maximum" || key == "exclusiveMinimum" || key == "exclusiveMaximum") {
    if (value.is(Value::Kind::kTrue) || value.is(Value::Kind::kFalse)) return {};  // draft 4: beside the limit
    if (!value.is(Value::Kind::kNumber)) return no_schema(schema, key, "a number");
    if (value.number().is_huge()) return unsupported("the limit is out of range");
    const bool is_low = key == "minimum" || key == "exclusiveMinimum";
    const Value* beside = schema.find(is_low ? "exclusiveMinimum" : "exclusiveMaximum");
    const bool is_exclusive = key[0] == 'e' || (beside != nullptr && beside->is(Value::Kind::kTrue));
    is_low ? shape.numbers.at_least({value.number(), is_exclusive})
           : shape.numbers.at_most({value.number(), is_exclusive});
    return {};
  }
  if (key == "multipleOf") {
    if (!value.is(Value::Kind::kNumber)) return no_schema(schema, key, "a number");
    const Decimal divisor = value.number();
    if (divisor.is_zero() || divisor.is_negative) return no_schema(schema, key, "more than 0");
    TRY(multiples_can_be_held(divisor));
    shape.numbers.multiples.push_back(divisor);
    return {};
  }
  struct Count {
    const char* key;
    uint32_t Shape::*member;
  };
  static constexpr Count kCounts[] = {{"minLength", &Shape::min_length},      {"maxLength", &Shape::max_length},
                                      {"minItems", &Shape::min_items},        {"maxItems", &Shape::max_items},
                                      {"minProperties", &Shape::min_members}, {"maxProperties", &Shape::max_members}};
  for (const Count& c : kCounts) {
    if (key != c.key) continue;
    Result<uint32_t> n = count(value, key);
    if (!n) return no_schema(schema, key, "a whole number of at least 0");
    const bool is_max = key[1] == 'a';
    if (!is_max && *n > kMaxRepeat) return unsupported("the number is too large");
    shape.*c.member = std::min(*n, kMaxRepeat);  // an answer is shorter
    return {};
  }
  if (key == "pattern") {
    if (!value.is(Value::Kind::kString)) return no_schema(schema, key, "a string");
    Result<Pattern> made = pattern(value.text, false);
    if (!made) return std::move(made).error();
    shape.patterns.push_back(*std::move(made));
    return {};
  }
  if (key == "format") {
    if (!value.is(Value::Kind::kString) || !options_.holds_formats) return {};
    const char* regex = format_expression(value.text);
    if (regex == nullptr) {
      if (report_ != nullptr && report_->ignored.size() < report_->most)
        report_->ignored.push_back("The format " + in_quotes(value.text) + " at " + document_.pointer(&schema) +
                                   " is an annotation here.");
      return {};
    }
    ASSIGN_OR_RETURN(Pattern made, pattern(regex, false));
    formats_.emplace(made.get(), format_is_exact(value.text));
    shape.patterns.push_back(std::move(made));
    return {};
  }
  if (key == "required") {
    if (value.is(Value::Kind::kTrue) || value.is(Value::Kind::kFalse)) return {};  // draft 3
    if (!value.is(Value::Kind::kArray)) return no_schema(schema, key, "a list of names");
    Held held(fuel_);
    for (const Value& name : value.items) {
      if (!name.is(Value::Kind::kString)) return no_schema(schema, key, "a list of names");
      if (!fuel_.burn(4 + static_cast<int64_t>(shape.required.size()) / 8)) return out_of_fuel();
      if (!held.add(2 * static_cast<int64_t>(sizeof name.text) + block_of(name.text))) return out_of_fuel();
      shape.require(name.text);
    }
    return {};
  }
  if (key == "uniqueItems") {
    if (value.is(Value::Kind::kTrue)) shape.unique = &schema;
    return {};
  }
  is_known = false;
  return {};
}

Result<Pattern> SchemaLogic::pattern(std::string_view regex, bool is_negated) {
  auto known = regexes_.find({std::string(regex), is_negated});
  if (known != regexes_.end()) return known->second;
  Result<CodeDfa> dfa = read_regex(regex, RegexUse::kSearch, fuel_);
  if (!dfa) {
    if (fuel_.is_empty()) return out_of_fuel();
    return unsupported("the expression " + in_quotes(regex) + " is not served (" + dfa.error().message + ")");
  }
  if (is_negated) {
    ASSIGN_OR_RETURN(dfa, dfa->complement(fuel_));
  }
  Pattern made = std::make_shared<const CodeDfa>(*std::move(dfa));
  if (!held_.add(128 + block(regex.size() + 1))) return out_of_fuel();
  regexes_.emplace(std::pair(std::string(regex), is_negated), made);
  return made;
}

}  // namespace ibid::grammar
