#include "sample/grammar/schema_logic.h"

#include <algorithm>

#include "base/quoted.h"
#include "base/utf8.h"
#include "sample/grammar/regex.h"

namespace ibid::grammar {
namespace {

constexpr int kMaxLogicDepth = 120;

Conjunction one(const Value& schema, bool is_negated = false) { return {{&schema, is_negated}}; }

Shapes alone(Shape shape) {
  Shapes made;
  made.push_back(std::move(shape));
  return made;
}

void append(Shapes& to, Shapes from) {
  for (Shape& shape : from) to.push_back(std::move(shape));
}

Shape forbidden_member(const std::string& name, const Value& never) {
  Shape shape = Shape::only(kObjectBit);
  ObjectKeywords keywords;
  keywords.properties.push_back({name, one(never)});
  keywords.evaluates = false;
  shape.objects.push_back(std::move(keywords));
  return shape;
}

const Value& never() {
  static const Value value{Value::Kind::kFalse};
  return value;
}

// Keywords that say nothing about values.
bool is_annotation(const std::string& key) {
  static const std::set<std::string, std::less<>> names = {"$schema",
                                                           "$id",
                                                           "id",
                                                           "$anchor",
                                                           "$dynamicAnchor",
                                                           "$comment",
                                                           "$defs",
                                                           "definitions",
                                                           "$vocabulary",
                                                           "title",
                                                           "description",
                                                           "default",
                                                           "examples",
                                                           "example",
                                                           "readOnly",
                                                           "writeOnly",
                                                           "deprecated",
                                                           "contentEncoding",
                                                           "contentMediaType",
                                                           "contentSchema",
                                                           "$recursiveAnchor",
                                                           "discriminator",
                                                           "externalDocs",
                                                           "xml",
                                                           "name",
                                                           "strict"};
  return names.contains(key) || key.starts_with("x-");
}

uint8_t bits_of_type(const std::string& name) {
  if (name == "null") return kNullBit;
  if (name == "boolean") return kFalseBit | kTrueBit;
  if (name == "number" || name == "integer") return kNumberBit;
  if (name == "string") return kStringBit;
  if (name == "array") return kArrayBit;
  if (name == "object") return kObjectBit;
  return 0;
}

uint8_t bit_of(const Value& value) {
  static constexpr uint8_t kBits[] = {kNullBit, kFalseBit, kTrueBit, kNumberBit, kStringBit, kArrayBit, kObjectBit};
  return kBits[static_cast<size_t>(value.kind)];
}

}  // namespace

Status SchemaLogic::cannot(const Value* schema, std::string_view keyword, std::string_view why) {
  std::string sentence =
      in_quotes(keyword) + " at " + document_.pointer(schema) + " cannot be held: " + std::string(why) + ".";
  if (options_.is_strict) return unsupported(std::move(sentence), document_.pointer(schema));
  if (report_ != nullptr && report_->ignored.size() < 100 &&
      std::find(report_->ignored.begin(), report_->ignored.end(), sentence) == report_->ignored.end())
    report_->ignored.push_back(std::move(sentence));
  return {};
}

Error SchemaLogic::no_schema(const Value& schema, const std::string& key, std::string_view what) const {
  return invalid(in_quotes(key) + " at " + document_.pointer(&schema) + " must be " + std::string(what) + ".",
                 document_.pointer(&schema));
}

Result<Shapes> SchemaLogic::meet(const Shapes& a, const Shapes& b) {
  Shapes made;
  for (const Shape& x : a) {
    for (const Shape& y : b) {
      const auto size = [](const Shape& s) {
        return s.objects.size() + s.arrays.size() + s.patterns.size() + s.required.size();
      };
      if (!fuel_.burn(100 + 20 * static_cast<int64_t>(size(x) + size(y)))) return out_of_fuel();
      Shape both = x;
      both.meet(y);
      if (both.settle()) made.push_back(std::move(both));
      if (made.size() > kMaxShapes) return unsupported("its alternatives are too many together");
    }
  }
  return made;
}

Status SchemaLogic::narrow(Shapes& all, Result<Shapes> by) {
  if (!by) return std::move(by).error();
  ASSIGN_OR_RETURN(all, meet(all, *by));
  return {};
}

Result<Shapes> SchemaLogic::shapes(const Conjunction& conjunction) {
  Shapes all = alone({});
  for (Literal literal : conjunction) TRY(narrow(all, shapes(literal)));
  return all;
}

bool SchemaLogic::is_false(const Conjunction& conjunction) const {
  return std::any_of(conjunction.begin(), conjunction.end(), [](Literal l) {
    return l.schema->is(l.is_negated ? Value::Kind::kTrue : Value::Kind::kFalse) ||
           (l.is_negated && l.schema->is_object() && l.schema->members.empty());
  });
}

Result<Shapes> SchemaLogic::shapes(Literal literal) {
  auto known = known_.find(literal);
  if (known != known_.end()) {
    if (!fuel_.burn(static_cast<int64_t>(known->second.size()) * 60)) return out_of_fuel();
    return known->second;
  }
  const Value& schema = *literal.schema;
  if (schema.is(Value::Kind::kTrue) || schema.is(Value::Kind::kFalse))
    return schema.is(Value::Kind::kTrue) != literal.is_negated ? alone({}) : Shapes();
  if (!schema.is_object())
    return invalid("The schema at " + document_.pointer(&schema) + " is neither an object nor a boolean.",
                   document_.pointer(&schema));
  if (!fuel_.burn(50)) return out_of_fuel();
  if (++depth_ > kMaxLogicDepth || !open_.insert(literal).second) {
    --depth_;
    return invalid(
        "The schema at " + document_.pointer(&schema) + " leads back to itself before it says anything of a value.",
        document_.pointer(&schema));
  }
  Result<Shapes> made = literal.is_negated ? read_negated(schema) : read(schema);
  open_.erase(literal);
  --depth_;
  if (!made) return made;
  if (literal.is_negated) {  // nothing that is refused evaluates, nor does what it refuses in turn
    for (Shape& shape : *made) {
      for (ObjectKeywords& keywords : shape.objects) keywords.evaluates = false;
      for (ArrayKeywords& keywords : shape.arrays) keywords.evaluates = false;
    }
  }
  if (fuel_.is_empty() || !fuel_.burn(static_cast<int64_t>(made->size()) * 100)) return out_of_fuel();
  return known_.emplace(literal, *std::move(made)).first->second;
}

Result<Shapes> SchemaLogic::read(const Value& schema) {
  Shapes all = alone({});
  const Value* ref = schema.find("$ref");
  if (ref != nullptr && document_.is_old()) {
    TRY(read_keyword(schema, "$ref", *ref, all));
    return all;
  }
  TRY(read_arrays(schema, all[0]));
  TRY(read_objects(schema, all[0]));
  for (const auto& [key, value] : schema.members) {
    Shapes before = all;
    Status done = read_keyword(schema, key, value, all);
    if (done) continue;
    if (done.error().kind != ErrorKind::kUnsupported || !done.error().where.empty()) return std::move(done).error();
    TRY(cannot(&schema, key, done.error().message));
    all = std::move(before);
    if (key == "oneOf") TRY(narrow(all, any_of(schema, value)));
  }
  TRY(read_unevaluated(schema, all));
  Shapes settled;
  for (Shape& shape : all)
    if (shape.settle()) settled.push_back(std::move(shape));
  return settled;
}

Status SchemaLogic::read_keyword(const Value& schema, const std::string& key, const Value& value, Shapes& all) {
  if (!fuel_.burn(10)) return out_of_fuel();
  bool is_simple = true;
  Shape simple;
  TRY(read_simple(schema, key, value, simple, is_simple));
  if (is_simple) return narrow(all, alone(std::move(simple)));
  if (key == "$ref" || key == "$dynamicRef" || key == "$recursiveRef") {
    if (!value.is(Value::Kind::kString)) return no_schema(schema, key, "a string");
    ASSIGN_OR_RETURN(const Value* target, document_.resolve(&schema, value.text, key == "$dynamicRef"));
    return narrow(all, shapes(Literal{target, false}));
  }
  if (key == "allOf" || key == "anyOf" || key == "oneOf") {
    if (!value.is(Value::Kind::kArray) || value.items.empty()) return no_schema(schema, key, "a list of schemas");
    if (key == "anyOf") return narrow(all, any_of(schema, value));
    if (key == "oneOf") return narrow(all, one_of(value));
    for (const Value& part : value.items) TRY(narrow(all, shapes(Literal{&part, false})));
    return {};
  }
  if (key == "not") return narrow(all, shapes(Literal{&value, true}));
  if (key == "if") {
    const Value *then = schema.find("then"), *otherwise = schema.find("else");
    if (then == nullptr && otherwise == nullptr && !document_.has_unevaluated()) return {};
    ASSIGN_OR_RETURN(Shapes yes, shapes(Literal{&value, false}));
    if (then != nullptr) TRY(narrow(yes, shapes(Literal{then, false})));
    ASSIGN_OR_RETURN(Shapes no, shapes(Literal{&value, true}));
    if (otherwise != nullptr) TRY(narrow(no, shapes(Literal{otherwise, false})));
    append(yes, std::move(no));
    return narrow(all, std::move(yes));
  }
  if (key == "dependentRequired" || key == "dependentSchemas" || key == "dependencies") {
    if (!value.is_object()) return no_schema(schema, key, "an object");
    return narrow(all, dependent(value));
  }
  static const std::set<std::string, std::less<>> with_others = {"then",
                                                                 "else",
                                                                 "properties",
                                                                 "patternProperties",
                                                                 "additionalProperties",
                                                                 "items",
                                                                 "prefixItems",
                                                                 "additionalItems",
                                                                 "minContains",
                                                                 "maxContains",
                                                                 "unevaluatedProperties",
                                                                 "unevaluatedItems",
                                                                 "contains",
                                                                 "propertyNames",
                                                                 "nullable"};
  if (with_others.contains(key) || is_annotation(key)) return {};
  // A keyword that nobody knows is an annotation by the standard; it is told of all the same.
  if (report_ != nullptr && report_->ignored.size() < 100)
    report_->ignored.push_back(in_quotes(key) + " at " + document_.pointer(&schema) +
                               " is no keyword that is known here.");
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
  for (const Value& name : value.is(Value::Kind::kArray) ? value.items : std::vector<Value>{value}) {
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
    Fuel trial(fuel_.left());
    NumberRules alone_rules;
    alone_rules.multiples = {divisor};
    auto texts = number_texts(alone_rules, trial);  // whether it can be held at all
    if (!texts) return std::move(texts).error();
    fuel_.burn(1000);
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
    shape.*c.member = *n > kMaxRepeat ? (is_max ? kUnbounded : kUnbounded - 1) : *n;
    if (!is_max && *n > kMaxRepeat) return unsupported("so many cannot be asked for");
    if (is_max && *n > kMaxRepeat) shape.*c.member = kMaxRepeat;  // an answer is shorter
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
      if (report_ != nullptr && report_->ignored.size() < 100)
        report_->ignored.push_back("The format " + in_quotes(value.text) + " at " + document_.pointer(&schema) +
                                   " is an annotation here.");
      return {};
    }
    ASSIGN_OR_RETURN(Pattern made, pattern(regex, false));
    shape.patterns.push_back(std::move(made));
    return {};
  }
  if (key == "required") {
    if (value.is(Value::Kind::kTrue) || value.is(Value::Kind::kFalse)) return {};  // draft 3
    if (!value.is(Value::Kind::kArray)) return no_schema(schema, key, "a list of names");
    for (const Value& name : value.items) {
      if (!name.is(Value::Kind::kString)) return no_schema(schema, key, "a list of names");
      if (!fuel_.burn(4 + static_cast<int64_t>(shape.required.size()) / 8)) return out_of_fuel();
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
  regexes_.emplace(std::pair(std::string(regex), is_negated), made);
  return made;
}

Result<Shapes> SchemaLogic::any_of(const Value& schema, const Value& list) {
  static_cast<void>(schema);
  Shapes all;
  for (const Value& part : list.items) {
    ASSIGN_OR_RETURN(Shapes made, shapes(Literal{&part, false}));
    append(all, std::move(made));
  }
  // Several may hold at once, and then all of them have evaluated: unevaluated* asks.
  if (document_.has_unevaluated() && list.items.size() <= 4) {
    for (uint32_t set = 1; set < (1u << list.items.size()); ++set) {
      if ((set & (set - 1)) == 0) continue;
      Shapes together = alone({});
      for (size_t i = 0; i < list.items.size(); ++i)
        if (set >> i & 1) TRY(narrow(together, shapes(Literal{&list.items[i], false})));
      append(all, std::move(together));
    }
  }
  if (all.size() > kMaxShapes) return unsupported("its alternatives are too many");
  return all;
}

Result<bool> SchemaLogic::are_disjoint(const Value& a, const Value& b) {
  ASSIGN_OR_RETURN(const Shapes all, shapes(both(one(a), one(b))));
  for (const Shape& shape : all) {
    ASSIGN_OR_RETURN(const bool empty, is_empty(shape, 2));
    if (!empty) return false;
  }
  return true;
}

Result<Shapes> SchemaLogic::one_of(const Value& list) {
  Shapes all;
  for (size_t i = 0; i < list.items.size(); ++i) {
    ASSIGN_OR_RETURN(Shapes made, shapes(Literal{&list.items[i], false}));
    for (size_t j = 0; j < list.items.size(); ++j) {
      if (i == j) continue;
      ASSIGN_OR_RETURN(const bool disjoint, are_disjoint(list.items[i], list.items[j]));
      if (!disjoint) TRY(narrow(made, shapes(Literal{&list.items[j], true})));
    }
    append(all, std::move(made));
  }
  return all;
}

Result<Shapes> SchemaLogic::dependent(const Value& value) {
  Shapes all = alone({});
  for (const auto& [name, then] : value.members) {
    Shapes choices = alone(Shape::only(kAllTypes & ~kObjectBit));
    choices.push_back(forbidden_member(name, never()));
    Shape has = Shape::only(kObjectBit);
    has.require(name);
    if (then.is(Value::Kind::kArray) || then.is(Value::Kind::kString)) {
      for (const Value& other : then.is(Value::Kind::kArray) ? then.items : std::vector<Value>{then})
        has.require(other.text);
      choices.push_back(std::move(has));
    } else {
      Shapes with = alone(std::move(has));
      TRY(narrow(with, shapes(Literal{&then, false})));
      append(choices, std::move(with));
    }
    TRY(narrow(all, std::move(choices)));
  }
  return all;
}

ArrayKeywords SchemaLogic::array_keywords(const Value& schema) const {
  ArrayKeywords made;
  const Value *items = schema.find("items"), *prefix = schema.find("prefixItems"),
              *more = schema.find("additionalItems");
  if (items != nullptr && items->is(Value::Kind::kArray)) prefix = items, items = more;
  if (prefix != nullptr)
    for (const Value& part : prefix->items) made.prefix.push_back(one(part));
  if (items != nullptr) made.rest = one(*items), made.has_rest = true;
  return made;
}

Status SchemaLogic::read_arrays(const Value& schema, Shape& shape) {
  ArrayKeywords keywords = array_keywords(schema);
  fuel_.burn(4 * static_cast<int64_t>(keywords.prefix.size()));
  if (keywords.has_rest || !keywords.prefix.empty()) shape.arrays.push_back(std::move(keywords));
  if (const Value* what = schema.find("contains")) {
    ContainsKeyword made;
    made.what = one(*what);
    for (const char* key : {"minContains", "maxContains"}) {
      const Value* limit = schema.find(key);
      if (limit == nullptr || document_.is_old()) continue;
      Result<uint32_t> n = count(*limit, key);
      if (!n) return no_schema(schema, key, "a whole number of at least 0");
      (key[1] == 'i' ? made.min : made.max) = *n;
    }
    if (made.min > made.max) {
      shape.types &= static_cast<uint8_t>(~kArrayBit);
    } else if (made.min > 0 || made.max != kUnbounded || document_.has_unevaluated()) {
      shape.contains.push_back(std::move(made));
    }
  }
  return {};
}

Result<ObjectKeywords> SchemaLogic::object_keywords(const Value& schema) {
  ObjectKeywords made;
  if (const Value* properties = schema.find("properties")) {
    if (!properties->is_object()) return no_schema(schema, "properties", "an object");
    for (const auto& [name, value] : properties->members) made.properties.push_back({name, one(value)});
    if (!fuel_.burn(8 * static_cast<int64_t>(made.properties.size()))) return out_of_fuel();
  }
  if (const Value* patterns = schema.find("patternProperties")) {
    for (const auto& [regex, value] : patterns->members) {
      Result<Pattern> names = pattern(regex, false);
      if (!names) {
        if (names.error().kind != ErrorKind::kUnsupported) return std::move(names).error();
        TRY(cannot(&schema, "patternProperties", names.error().message));
        continue;
      }
      made.patterns.push_back({*names, one(value)});
    }
  }
  if (const Value* additional = schema.find("additionalProperties"))
    made.additional = one(*additional), made.has_additional = true;
  return made;
}

Status SchemaLogic::read_objects(const Value& schema, Shape& shape) {
  ASSIGN_OR_RETURN(ObjectKeywords keywords, object_keywords(schema));
  if (keywords.has_additional || !keywords.properties.empty() || !keywords.patterns.empty())
    shape.objects.push_back(std::move(keywords));
  if (const Value* names = schema.find("propertyNames")) {
    Result<Pattern> made = names_of(one(*names));
    if (made) {
      shape.names.push_back(*std::move(made));
    } else if (made.error().kind == ErrorKind::kUnsupported && made.error().where.empty()) {
      TRY(cannot(&schema, "propertyNames", made.error().message));
    } else {
      return std::move(made).error();
    }
  }
  return {};
}

// The strings that are valid.
Result<Pattern> SchemaLogic::names_of(const Conjunction& conjunction) {
  ASSIGN_OR_RETURN(const Shapes all, shapes(conjunction));
  std::optional<CodeDfa> names;
  for (const Shape& shape : all) {
    if (!(shape.types & kStringBit)) continue;
    CodeDfa texts = CodeDfa::all();
    if (shape.values) {
      std::vector<std::string_view> allowed;
      for (const Value* v : *shape.values)
        if (v->is(Value::Kind::kString)) allowed.push_back(v->text);
      ASSIGN_OR_RETURN(texts, CodeDfa::one_of(allowed, fuel_));
    }
    ASSIGN_OR_RETURN(const CodeDfa length, CodeDfa::length(shape.min_length, shape.max_length, fuel_));
    ASSIGN_OR_RETURN(texts, CodeDfa::combine(texts, length, CodeDfa::How::kBoth, fuel_));
    for (const Pattern& p : shape.patterns) {
      ASSIGN_OR_RETURN(texts, CodeDfa::combine(texts, *p, CodeDfa::How::kBoth, fuel_));
    }
    if (!shape.excluded_strings.empty()) {
      const std::vector<std::string_view> out(shape.excluded_strings.begin(), shape.excluded_strings.end());
      ASSIGN_OR_RETURN(const CodeDfa excluded, CodeDfa::one_of(out, fuel_));
      ASSIGN_OR_RETURN(texts, CodeDfa::combine(texts, excluded, CodeDfa::How::kFirstOnly, fuel_));
    }
    if (names) {
      ASSIGN_OR_RETURN(texts, CodeDfa::combine(*names, texts, CodeDfa::How::kEither, fuel_));
    }
    names = std::move(texts);
  }
  if (!names) {
    ASSIGN_OR_RETURN(names, CodeDfa::one_of({}, fuel_));
  }
  return Pattern(std::make_shared<const CodeDfa>(*std::move(names)));
}

Status SchemaLogic::read_unevaluated(const Value& schema, Shapes& all) {
  if (const Value* value = schema.find("unevaluatedItems")) {
    for (Shape& shape : all) {
      ArrayKeywords made;
      bool is_done = false;
      size_t n = 0;
      for (const ArrayKeywords& keywords : shape.arrays) {
        if (!keywords.evaluates) continue;
        is_done |= keywords.has_rest;
        n = std::max(n, keywords.prefix.size());
      }
      if (is_done) continue;
      if (!shape.contains.empty() && (shape.types & kArrayBit)) {
        TRY(cannot(&schema, "unevaluatedItems", "beside contains it depends on each item"));
        continue;
      }
      made.prefix.resize(n);
      made.rest = one(*value);
      made.has_rest = true;
      shape.arrays.push_back(std::move(made));
    }
  }
  if (const Value* value = schema.find("unevaluatedProperties")) {
    for (Shape& shape : all) {
      ObjectKeywords made;
      bool is_done = false;
      for (const ObjectKeywords& keywords : shape.objects) {
        if (!keywords.evaluates) continue;
        is_done |= keywords.has_additional;
        for (const auto& [name, schemas] : keywords.properties) made.properties.push_back({name, {}});
        for (const auto& [names, schemas] : keywords.patterns) made.patterns.push_back({names, {}});
      }
      if (is_done) continue;
      made.additional = one(*value);
      made.has_additional = true;
      shape.objects.push_back(std::move(made));
    }
  }
  return {};
}

// --- Negation ---

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
    append(all, *std::move(made));
    if (all.size() > kMaxShapes) return unsupported("its alternatives are too many");
  }
  std::erase_if(all, [](Shape& shape) { return !shape.settle(); });
  return all;
}

Result<Shapes> SchemaLogic::negated_keyword(const Value& schema, const std::string& key, const Value& value) {
  if (!fuel_.burn(20)) return out_of_fuel();
  Shape shape;
  bool is_simple = true;
  TRY(read_simple(schema, key, value, shape, is_simple));  // which checks it
  if (is_simple) return negated_simple(schema, key, value);
  Shapes all;
  if (key == "$ref" || key == "$dynamicRef" || key == "$recursiveRef") {
    ASSIGN_OR_RETURN(const Value* target, document_.resolve(&schema, value.text, key == "$dynamicRef"));
    return shapes(Literal{target, true});
  }
  if (key == "not") return shapes(Literal{&value, false});
  if (key == "allOf") {
    for (const Value& part : value.items) {
      ASSIGN_OR_RETURN(Shapes made, shapes(Literal{&part, true}));
      append(all, std::move(made));
    }
    return all;
  }
  if (key == "anyOf" || key == "oneOf") {
    all = alone({});
    for (const Value& part : value.items) TRY(narrow(all, shapes(Literal{&part, true})));
    for (size_t i = 0; key == "oneOf" && i < value.items.size(); ++i)
      for (size_t j = i + 1; j < value.items.size(); ++j) {
        ASSIGN_OR_RETURN(Shapes two, shapes(both(one(value.items[i]), one(value.items[j]))));
        append(all, std::move(two));
      }
    return all;
  }
  if (key == "if") {
    for (const char* branch : {"then", "else"}) {
      const Value* then = schema.find(branch);
      if (then == nullptr) continue;
      ASSIGN_OR_RETURN(Shapes made, shapes(Literal{&value, branch[0] == 'e'}));
      TRY(narrow(made, shapes(Literal{then, true})));
      append(all, std::move(made));
    }
    return all;
  }
  if (key == "properties") {
    for (const auto& [name, part] : value.members) {
      Shape has = forbidden_member(name, never());
      has.objects[0].properties[0].second = one(part, true);
      has.require(name);
      all.push_back(std::move(has));
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
      ASSIGN_OR_RETURN(Pattern names, known_names(keywords, true));
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
      for (size_t i = 0; i < keywords.prefix.size(); ++i) {
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
        for (const Value& other : then.is(Value::Kind::kArray) ? then.items : std::vector<Value>{then}) {
          Shape lacks = forbidden_member(other.text, never());
          lacks.meet(has);
          all.push_back(std::move(lacks));
        }
      } else {
        Shapes with = alone(std::move(has));
        TRY(narrow(with, shapes(Literal{&then, true})));
        append(all, std::move(with));
      }
    }
    return all;
  }
  if (key == "unevaluatedProperties" || key == "unevaluatedItems") return unsupported("what is evaluated is not known");
  return all;  // then and else with if; the others say nothing
}

Result<Pattern> SchemaLogic::known_names(const ObjectKeywords& keywords, bool is_negated) {
  std::vector<std::string_view> texts;
  for (const auto& [name, schemas] : keywords.properties) texts.push_back(name);
  ASSIGN_OR_RETURN(CodeDfa names, CodeDfa::one_of(texts, fuel_));
  for (const auto& [more, schemas] : keywords.patterns) {
    ASSIGN_OR_RETURN(names, CodeDfa::combine(names, *more, CodeDfa::How::kEither, fuel_));
  }
  if (is_negated) {
    ASSIGN_OR_RETURN(names, names.complement(fuel_));
  }
  return Pattern(std::make_shared<const CodeDfa>(std::move(names)));
}

Result<Shapes> SchemaLogic::negated_simple(const Value& schema, const std::string& key, const Value& value) {
  Shape made;
  if (key == "type") {
    Shape types;
    TRY(read_types(schema, value, types));
    Shapes all = alone(Shape::only(static_cast<uint8_t>(kAllTypes & ~types.types)));
    if (types.numbers.is_integer) {
      all.push_back(Shape::only(kNumberBit));
      all.back().numbers.is_fraction = true;
    }
    return all;
  }
  if (key == "enum" || key == "const") {
    Shape values;
    bool is_known = true;
    TRY(read_simple(schema, key, value, values, is_known));
    bool is_partial = false;
    for (const Value* v : *values.values) {
      const uint8_t bit = bit_of(*v);
      if (bit == kNumberBit) {
        made.numbers.excluded.push_back(v->number());
      } else if (bit == kStringBit) {
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
    Shape limits;
    bool is_known = true;
    TRY(read_simple(schema, key, value, limits, is_known));
    made.types = kNumberBit;
    if (limits.numbers.low)
      made.numbers.high = NumberLimit{limits.numbers.low->value, !limits.numbers.low->is_exclusive};
    if (limits.numbers.high)
      made.numbers.low = NumberLimit{limits.numbers.high->value, !limits.numbers.high->is_exclusive};
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
    if (n >= kMaxRepeat) return unsupported("so many cannot be asked for");
    made.types = c.type;
    made.*c.other = c.is_min ? n - 1 : n + 1;
    return alone(std::move(made));
  }
  if (key == "pattern" || key == "format") {
    const char* regex = key == "pattern"         ? value.text.c_str()
                        : options_.holds_formats ? format_expression(value.text)
                                                 : nullptr;
    if (regex == nullptr) return Shapes();
    ASSIGN_OR_RETURN(Pattern others, pattern(regex, true));
    made.types = kStringBit;
    made.patterns.push_back(std::move(others));
    return alone(std::move(made));
  }
  if (key == "required") {
    Shapes all;
    for (const Value& name : value.items) all.push_back(forbidden_member(name.text, never()));
    return all;
  }
  if (key == "uniqueItems") {
    if (!value.is(Value::Kind::kTrue)) return Shapes();
    return unsupported("lists with equal items cannot be asked for");
  }
  return unsupported("it has no opposite here");
}

// --- What shapes hold ---

Conjunction SchemaLogic::item(const Shape& shape, size_t index) {
  Conjunction made;
  for (const ArrayKeywords& keywords : shape.arrays)
    made = both(made, index < keywords.prefix.size() ? keywords.prefix[index] : keywords.rest);
  return made;
}

Result<std::optional<Conjunction>> SchemaLogic::member(const Shape& shape, const std::string& name) {
  for (const Pattern& names : shape.names)
    if (!names->accepts(name)) return std::optional<Conjunction>();
  Conjunction made;
  for (const ObjectKeywords& keywords : shape.objects) {
    if (!fuel_.burn(4 + static_cast<int64_t>(keywords.properties.size()) / 4)) return out_of_fuel();
    bool is_known = false;
    for (const auto& [known, schemas] : keywords.properties)
      if (known == name) made = both(made, schemas), is_known = true;
    for (const auto& [names, schemas] : keywords.patterns)
      if (names->accepts(name)) made = both(made, schemas), is_known = true;
    if (!is_known) made = both(made, keywords.additional);
  }
  if (is_false(made)) return std::optional<Conjunction>();
  return std::optional<Conjunction>(std::move(made));
}

// Whether it is plainly empty; a guess in one direction.
Result<bool> SchemaLogic::is_empty(const Shape& shape, int depth) {
  Shape copy = shape;
  if (!copy.settle()) return true;
  if (copy.values) {
    for (const Value* v : *copy.values) {
      ASSIGN_OR_RETURN(const bool is_held, holds(copy, *v));
      if (is_held) return false;
    }
    return true;
  }
  if (copy.types != kObjectBit || depth == 0) return false;
  for (const std::string& name : copy.required) {
    ASSIGN_OR_RETURN(const std::optional<Conjunction> value, member(copy, name));
    if (!value) return true;
    ASSIGN_OR_RETURN(const Shapes all, shapes(*value));
    bool empty = true;
    for (const Shape& s : all) {
      ASSIGN_OR_RETURN(const bool e, is_empty(s, depth - 1));
      empty &= e;
    }
    if (empty) return true;
  }
  return false;
}

Result<bool> SchemaLogic::holds(const Conjunction& conjunction, const Value& value) {
  ASSIGN_OR_RETURN(const Shapes all, shapes(conjunction));
  for (const Shape& shape : all) {
    ASSIGN_OR_RETURN(const bool is_held, holds(shape, value));
    if (is_held) return true;
  }
  return false;
}

Result<bool> SchemaLogic::holds(const Shape& shape, const Value& value) {
  if (!fuel_.burn(20)) return out_of_fuel();
  if (!(shape.types & bit_of(value))) return false;
  if (shape.values &&
      std::none_of(shape.values->begin(), shape.values->end(), [&](const Value* v) { return *v == value; }))
    return false;
  switch (value.kind) {
    case Value::Kind::kNumber:
      return shape.numbers.allows(value.number());
    case Value::Kind::kString: {
      const size_t n = utf8::count(value.text);
      if (n < shape.min_length || n > shape.max_length) return false;
      for (const Pattern& p : shape.patterns)
        if (!p->accepts(value.text)) return false;
      const auto& out = shape.excluded_strings;
      return std::find(out.begin(), out.end(), value.text) == out.end();
    }
    case Value::Kind::kArray: {
      const size_t n = value.items.size();
      if (n < shape.min_items || n > shape.max_items) return false;
      for (size_t i = 0; i < n; ++i) {
        ASSIGN_OR_RETURN(const bool is_held, holds(item(shape, i), value.items[i]));
        if (!is_held) return false;
        if (!fuel_.burn(static_cast<int64_t>(i))) return out_of_fuel();
        for (size_t j = 0; shape.unique != nullptr && j < i; ++j)
          if (value.items[i] == value.items[j]) return false;
      }
      for (const ContainsKeyword& c : shape.contains) {
        uint32_t found = 0;
        for (size_t i = c.from; i < n; ++i) {
          ASSIGN_OR_RETURN(const bool is_held, holds(c.what, value.items[i]));
          found += is_held;
        }
        if (found < c.min || found > c.max) return false;
      }
      return true;
    }
    case Value::Kind::kObject:
      break;
    default:
      return true;
  }
  const size_t n = value.members.size();
  if (n < shape.min_members || n > shape.max_members) return false;
  for (const std::string& name : shape.required)
    if (value.find(name) == nullptr) return false;
  for (const auto& [name, part] : value.members) {
    ASSIGN_OR_RETURN(const std::optional<Conjunction> schemas, member(shape, name));
    if (!schemas) return false;
    ASSIGN_OR_RETURN(const bool is_held, holds(*schemas, part));
    if (!is_held) return false;
  }
  for (const SomeMember& some : shape.some) {
    bool found = false;
    for (const auto& [name, part] : value.members) {
      if (!some.names->accepts(name)) continue;
      ASSIGN_OR_RETURN(const bool is_held, holds(some.value, part));
      found |= is_held;
    }
    if (!found) return false;
  }
  return true;
}

// RFC 3339 (dates with leap days), 4122, 3986, 2673, 4291 and the usual ones: narrower than some validators are, never
// wider.
const char* format_expression(std::string_view format) {
  static const std::map<std::string_view, std::string> known = [] {
    const std::string year = "\\d{4}", leap = "(\\d\\d(0[48]|[2468][048]|[13579][26])|([02468][048]|[13579][26])00)";
    const std::string date =
        "(" + year +
        "-((0[13578]|1[02])-(0[1-9]|[12]\\d|3[01])|(0[469]|11)-(0[1-9]|[12]\\d|30)|02-(0[1-9]|1\\d|2[0-8]))|" + leap +
        "-02-29)";
    const std::string time = "([01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d(\\.\\d{1,9})?(Z|[+-]([01]\\d|2[0-3]):[0-5]\\d)";
    const std::string byte = "(25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)", v4 = byte + "(\\." + byte + "){3}",
                      h = "[0-9a-fA-F]{1,4}";
    std::string v6 = "((" + h + ":){7}" + h + "|(" + h + ":){6}" + v4;
    for (int before = 0; before <= 6; ++before) {
      const int after = 6 - before;  // at most, behind ::
      v6 += "|" + (before == 0 ? std::string() : h + "(:" + h + "){" + std::to_string(before - 1) + "}") + "::";
      if (after > 0) v6 += "(" + h + "(:" + h + "){0," + std::to_string(after - 1) + "})?";
    }
    v6 += "|(" + h + ":){1,7}:)";
    const std::string plain_label = "[A-Za-z0-9]{1,63}(-[A-Za-z0-9]{1,30})?";
    const std::string host = "(" + plain_label + "(\\." + plain_label + "){0,3})";
    const std::string pct = "%[0-9A-Fa-f]{2}", pchar = "([A-Za-z0-9._~!$&'()*+,;=:@-]|" + pct + ")";
    const std::string path = "(/" + pchar + "*)*", query = "(\\?(" + pchar + "|[/?])*)?(#(" + pchar + "|[/?])*)?";
    const std::string authority = "//([A-Za-z0-9._~!$&'()*+,;=-]|" + pct + ")*(:\\d{0,5})?" + path;
    const std::string first = "([A-Za-z0-9._~!$&'()*+,;=@-]|" + pct + ")";
    const std::string atext = "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]";
    auto whole = [](const std::string& e) { return "^(" + e + ")$"; };
    return std::map<std::string_view, std::string>{
        {"date", whole(date)},
        {"time", whole(time)},
        {"date-time", whole(date + "T" + time)},
        {"duration", whole("P(\\d+W|(\\d+Y(\\d+M(\\d+D)?)?|\\d+M(\\d+D)?|\\d+D)(T(\\d+H(\\d+M(\\d+S)?)?|\\d+M(\\d+S)?|"
                           "\\d+S))?|T(\\d+H(\\d+M(\\d+S)?)?|\\d+M(\\d+S)?|\\d+S))")},
        {"email", whole(atext + "{1,64}(\\." + atext + "{1,20}){0,2}@" + host)},
        {"hostname", whole(host)},
        {"ipv4", whole(v4)},
        {"ipv6", whole(v6)},
        {"uuid", whole("[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}")},
        {"uri", whole("[A-Za-z][A-Za-z0-9+.-]*:(" + authority + "|/(" + pchar + "+" + path + ")?|" + pchar + "+" +
                      path + ")?" + query)},
        {"uri-reference", whole("([A-Za-z][A-Za-z0-9+.-]*:)?(" + authority + "|/(" + pchar + "+" + path + ")?)" +
                                query + "|" + first + "+" + path + query)},
        {"byte", whole("([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?")},
    };
  }();
  auto at = known.find(format);
  return at == known.end() ? nullptr : at->second.c_str();
}

}  // namespace ibid::grammar
