// What schemas refuse, as shapes: the union of what negates each keyword.
#include "sample/grammar/schema_formats.h"
#include "sample/grammar/schema_logic.h"

namespace ibid::grammar {

Result<Shapes> SchemaLogic::read_negated(const Value& schema) {
  Shapes all;
  const Value* ref = schema.find("$ref");
  for (const auto& [key, value] : schema.members) {
    if (ref != nullptr && document_.is_old() && key != "$ref") continue;
    Result<Shapes> made = negated_keyword(schema, key, value);
    if (!made) {
      if (made.error().kind != ErrorKind::kUnsupported || !made.error().where.empty()) return made;
      TRY(cannot(&schema, key, "under a negation, " + made.error().message));
      return alone({});  // may be anything: never too narrow a refusal
    }
    TRY(append(all, *std::move(made)));
    if (all.size() > kMaxShapes) return unsupported("its alternatives are too many");
  }
  std::erase_if(all, [](Shape& shape) { return !shape.settle(); });
  return all;
}

Result<Shapes> SchemaLogic::negated_keyword(const Value& schema, const std::string& key, const Value& value) {
  if (!fuel_.burn(20)) return out_of_fuel();
  Shape own;
  bool is_simple = true;
  TRY(read_simple(schema, key, value, own, is_simple));  // which checks it
  if (is_simple) return negated_simple(key, value, own);
  TRY(check_keyword(schema, key, value));
  Shapes all;
  if (key == "$ref" || key == "$dynamicRef" || key == "$recursiveRef") {
    ASSIGN_OR_RETURN(const Value* target, document_.resolve(&schema, value.text, key == "$dynamicRef", fuel_));
    return shapes(Literal{target, true});
  }
  if (key == "not") return shapes(Literal{&value, false});
  if (key == "allOf") {
    for (const Value& part : value.items) {
      ASSIGN_OR_RETURN(Shapes made, shapes(Literal{&part, true}));
      TRY(append(all, std::move(made)));
    }
    return all;
  }
  if (key == "anyOf" || key == "oneOf") {
    all = alone({});
    for (const Value& part : value.items) TRY(narrow(all, shapes(Literal{&part, true})));
    for (size_t i = 0; key == "oneOf" && i < value.items.size(); ++i)
      for (size_t j = i + 1; j < value.items.size(); ++j) {
        ASSIGN_OR_RETURN(Shapes two, shapes(both(one(value.items[i]), one(value.items[j]))));
        TRY(append(all, std::move(two)));
      }
    return all;
  }
  if (key == "if") {
    for (const char* branch : {"then", "else"}) {
      const Value* then = schema.find(branch);
      if (then == nullptr) continue;
      ASSIGN_OR_RETURN(Shapes made, shapes(Literal{&value, branch[0] == 'e'}));
      TRY(narrow(made, shapes(Literal{then, true})));
      TRY(append(all, std::move(made)));
    }
    return all;
  }
  if (key == "properties") {
    for (const auto& [name, part] : value.members) {
      Shape has = member_is(name, one(part, true));
      has.require(name);
      TRY(add(all, std::move(has)));
      if (all.size() > kMaxShapes) break;  // which is refused
    }
    return all;
  }
  if (key == "patternProperties" || key == "additionalProperties" || key == "propertyNames") {
    ASSIGN_OR_RETURN(const ObjectKeywords keywords, object_keywords(schema));
    auto some = [&](Pattern names, Conjunction what) {
      Shape has = Shape::only(kObjectBit);
      has.some.push_back({std::move(names), std::move(what)});
      has.min_members = 1;
      all.push_back(std::move(has));
    };
    if (key == "patternProperties") {
      for (const auto& [names, schemas] : keywords.patterns) some(names, one(*schemas[0].schema, true));
    } else if (key == "additionalProperties") {
      ASSIGN_OR_RETURN(Pattern names, unknown_names(keywords));
      some(std::move(names), one(value, true));
    } else {
      ASSIGN_OR_RETURN(const Pattern names, names_of(one(value)));
      ASSIGN_OR_RETURN(CodeDfa others, names->complement(fuel_));
      some(std::make_shared<const CodeDfa>(std::move(others)), {});
    }
    return all;
  }
  if (key == "items" || key == "prefixItems" || key == "additionalItems") {
    const ArrayKeywords keywords = array_keywords(schema);
    const bool is_list = value.is(Value::Kind::kArray);
    if (is_list) {
      if (keywords.has_rest && keywords.rest[0].schema == &value) return no_schema(schema, key, "a schema");
      // If `items` and `prefixItems` are both lists, only one of them counts.
      const bool is_prefix = !keywords.prefix.empty() && keywords.prefix[0][0].schema == value.items.data();
      for (size_t i = 0; is_prefix && i < keywords.prefix.size(); ++i) {
        if (all.size() > kMaxShapes) break;
        Shape has = Shape::only(kArrayBit);
        has.min_items = static_cast<uint32_t>(i) + 1;
        ArrayKeywords at;
        at.evaluates = false;
        at.prefix.resize(i + 1);
        at.prefix[i] = one(value.items[i], true);
        has.arrays.push_back(std::move(at));
        all.push_back(std::move(has));
      }
    } else if (keywords.has_rest && keywords.rest[0].schema == &value) {
      Shape has = Shape::only(kArrayBit);
      has.contains.push_back({one(value, true), 1, kUnbounded, static_cast<uint32_t>(keywords.prefix.size())});
      all.push_back(std::move(has));
    }
    return all;
  }
  if (key == "contains") {
    Shape trial;
    TRY(read_arrays(schema, trial));
    if (!(trial.types & kArrayBit)) return alone(Shape::only(kArrayBit));
    for (const ContainsKeyword& c : trial.contains) {
      if (c.min > 0) {
        Shape fewer = Shape::only(kArrayBit);
        fewer.contains.push_back({c.what, 0, c.min - 1});
        all.push_back(std::move(fewer));
      }
      if (c.max != kUnbounded) {
        if (c.max >= kMaxRepeat) return unsupported("the number is too large");
        Shape more = Shape::only(kArrayBit);
        more.contains.push_back({c.what, c.max + 1, kUnbounded});
        all.push_back(std::move(more));
      }
    }
    return all;
  }
  if (key == "dependentRequired" || key == "dependentSchemas" || key == "dependencies") {
    for (const auto& [name, then] : value.members) {
      Shape has = Shape::only(kObjectBit);
      has.require(name);
      if (then.is(Value::Kind::kArray) || then.is(Value::Kind::kString)) {
        for (const Value& other : then.as_list()) {
          Shape lacks = forbidden_member(other.text);
          lacks.meet(has);
          TRY(add(all, std::move(lacks)));
          if (all.size() > kMaxShapes) break;
        }
      } else {
        Shapes with = alone(std::move(has));
        TRY(narrow(with, shapes(Literal{&then, true})));
        TRY(append(all, std::move(with)));
      }
    }
    return all;
  }
  if (key == "unevaluatedProperties" || key == "unevaluatedItems") return unsupported("what is evaluated is not known");
  return all;  // then and else with if; the others constrain nothing
}

Result<Shapes> SchemaLogic::negated_simple(const std::string& key, const Value& value, const Shape& own) {
  Shape made;
  if (key == "type") {
    Shapes all = alone(Shape::only(static_cast<uint8_t>(kAllTypes & ~own.types)));
    if (own.numbers.is_integer) {
      all.push_back(Shape::only(kNumberBit));
      all.back().numbers.is_fraction = true;
    }
    return all;
  }
  if (key == "enum" || key == "const") {
    bool is_partial = false;
    Held held(fuel_);
    for (const Value* v : *own.values) {
      const uint8_t bit = bit_of(*v);
      if (bit == kNumberBit) {
        if (!held.add(96 + block_of(v->text))) return out_of_fuel();
        made.numbers.excluded.push_back(v->number());
      } else if (bit == kStringBit) {
        if (!held.add(2 * static_cast<int64_t>(sizeof v->text) + block_of(v->text))) return out_of_fuel();
        made.excluded_strings.push_back(v->text);
      } else if (bit == kArrayBit || bit == kObjectBit) {
        is_partial = true;
      } else {
        made.types &= static_cast<uint8_t>(~bit);
      }
    }
    if (is_partial) return unsupported("lists and objects cannot be left out");
    return alone(std::move(made));
  }
  if (key == "minimum" || key == "maximum" || key == "exclusiveMinimum" || key == "exclusiveMaximum") {
    made.types = kNumberBit;
    if (own.numbers.low) made.numbers.high = NumberLimit{own.numbers.low->value, !own.numbers.low->is_exclusive};
    if (own.numbers.high) made.numbers.low = NumberLimit{own.numbers.high->value, !own.numbers.high->is_exclusive};
    if (!made.numbers.low && !made.numbers.high) return Shapes();
    return alone(std::move(made));
  }
  if (key == "multipleOf") {
    made.types = kNumberBit;
    made.numbers.no_multiples.push_back(value.number());
    return alone(std::move(made));
  }
  struct Count {
    const char* key;
    uint8_t type;
    uint32_t Shape::*other;
    bool is_min;
  };
  static constexpr Count kCounts[] = {{"minLength", kStringBit, &Shape::max_length, true},
                                      {"maxLength", kStringBit, &Shape::min_length, false},
                                      {"minItems", kArrayBit, &Shape::max_items, true},
                                      {"maxItems", kArrayBit, &Shape::min_items, false},
                                      {"minProperties", kObjectBit, &Shape::max_members, true},
                                      {"maxProperties", kObjectBit, &Shape::min_members, false}};
  for (const Count& c : kCounts) {
    if (key != c.key) continue;
    ASSIGN_OR_RETURN(const uint32_t n, count(value, key));
    if (c.is_min && n == 0) return Shapes();
    if (n >= kMaxRepeat) return unsupported("the number is too large");
    made.types = c.type;
    made.*c.other = c.is_min ? n - 1 : n + 1;
    return alone(std::move(made));
  }
  if (key == "pattern" || key == "format") {
    std::string_view regex = value.text;
    if (key == "format") {
      const char* expression = options_.holds_formats ? format_expression(value.text) : nullptr;
      if (expression == nullptr) return Shapes();
      if (!format_is_exact(value.text)) return unsupported("the format is read narrower than it is");
      regex = expression;
    }
    ASSIGN_OR_RETURN(Pattern others, pattern(regex, true));
    made.types = kStringBit;
    made.patterns.push_back(std::move(others));
    return alone(std::move(made));
  }
  if (key == "required") {
    Shapes all;
    for (const Value& name : value.items) {
      TRY(add(all, forbidden_member(name.text)));
      if (all.size() > kMaxShapes) break;
    }
    return all;
  }
  if (key == "uniqueItems") {
    if (!value.is(Value::Kind::kTrue)) return Shapes();
    return unsupported("lists with equal items cannot be required");
  }
  return unsupported("it has no opposite here");
}

}  // namespace ibid::grammar
