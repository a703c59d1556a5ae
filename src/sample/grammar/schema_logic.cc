#include "sample/grammar/schema_logic.h"

#include <algorithm>

#include "base/quoted.h"
#include "sample/grammar/regex.h"
#include "sample/grammar/schema_formats.h"

namespace ibid::grammar {
namespace {

constexpr int kMaxLogicDepth = 120;

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

}  // namespace

Status SchemaLogic::cannot(const Value* schema, std::string_view keyword, std::string_view why) {
  std::string sentence =
      in_quotes(keyword) + " at " + document_.pointer(schema) + " cannot be held: " + std::string(why) + ".";
  if (options_.is_strict && !(keyword == "oneOf" && options_.coerces_one_of))
    return unsupported(std::move(sentence), document_.pointer(schema));
  if (report_ != nullptr && report_->ignored.size() < report_->most &&
      std::find(report_->ignored.begin(), report_->ignored.end(), sentence) == report_->ignored.end())
    report_->ignored.push_back(std::move(sentence));
  return {};
}

Error SchemaLogic::no_schema(const Value& schema, const std::string& key, std::string_view what) const {
  return invalid(in_quotes(key) + " at " + document_.pointer(&schema) + " must be " + std::string(what) + ".",
                 document_.pointer(&schema));
}

namespace {

constexpr uint32_t kFewValues = 16;

// Beyond what copying or moving any shape costs.
int64_t cost_of_copying(int64_t bytes) {
  constexpr int64_t kFew = 4096;
  return std::max<int64_t>(bytes - kFew, 0) / 32;
}

int64_t cost_of_comparing(const Value& a, const Value& b) {
  if (a.n_values != b.n_values || a.n_values <= kFewValues) return 0;
  const auto n = static_cast<int64_t>(a.n_values), n_members = static_cast<int64_t>(a.members.size());
  return 4 * n + n_members * std::min(n, n_members) / 8;
}

size_t size_of(const Shape& s) { return s.objects.size() + s.arrays.size() + s.patterns.size() + s.required.size(); }

// Each value of the one is looked for among those of the other, and each name; of objects each member among all.
int64_t cost_of_meeting(const Shape& a, const Shape& b) {
  const size_t n_pairs = a.values && b.values ? a.values->size() * b.values->size() : 0;
  const size_t n_names = a.required.size() * b.required.size();
  auto cost = static_cast<int64_t>(100 + 20 * (size_of(a) + size_of(b)) + n_pairs / 2 + n_names / 8);
  if (n_pairs == 0) return cost;
  const auto are_large = [](const Value* v) { return v->n_values > kFewValues; };
  if (std::ranges::none_of(*a.values, are_large)) return cost;
  for (const Value* v : *a.values)
    for (const Value* o : *b.values) cost += cost_of_comparing(*v, *o);
  return cost;
}

}  // namespace

Result<Shapes> SchemaLogic::meet(const Shapes& a, const Shapes& b) {
  Shapes made;
  for (const Shape& x : a) {
    const int64_t of_x = x.bytes();
    for (const Shape& y : b) {
      const int64_t bytes = of_x + y.bytes();
      if (!fuel_.burn(cost_of_meeting(x, y) + cost_of_copying(bytes)) || !fuel_.has_room(2 * bytes))
        return out_of_fuel();
      Shape both = x;
      both.meet(y);
      if (both.settle()) TRY(add(made, std::move(both)));
      if (made.size() > kMaxShapes) return unsupported("its alternatives are too many together");
    }
  }
  return made;
}

Status SchemaLogic::add(Shapes& all, Shape shape) {
  if (!shape.held.set(fuel_, shape.bytes())) return out_of_fuel();
  all.push_back(std::move(shape));
  return {};
}

Status SchemaLogic::append(Shapes& all, Shapes more) {
  for (Shape& shape : more) TRY(add(all, std::move(shape)));
  return {};
}

Status SchemaLogic::narrow(Shapes& all, Result<Shapes> by) {
  if (!by) return std::move(by).error();
  if (by->size() == 1) return narrow(all, (*by)[0]);  // without copies
  ASSIGN_OR_RETURN(all, meet(all, *by));
  return {};
}

Status SchemaLogic::narrow(Shapes& all, const Shape& by) {
  size_t n_kept = 0;
  for (Shape& shape : all) {
    const int64_t bytes = by.bytes();
    if (!fuel_.burn(cost_of_meeting(shape, by) + cost_of_copying(bytes)) || !fuel_.has_room(2 * bytes))
      return out_of_fuel();
    shape.meet(by);
    if (!shape.settle()) continue;
    if (!shape.held.set(fuel_, shape.bytes())) return out_of_fuel();
    if (&all[n_kept] != &shape) all[n_kept] = std::move(shape);
    ++n_kept;
  }
  all.erase(all.begin() + static_cast<ptrdiff_t>(n_kept), all.end());
  return {};
}

Result<Shapes> SchemaLogic::shapes(const Conjunction& conjunction) {
  if (conjunction.empty()) return alone({});
  ASSIGN_OR_RETURN(Shapes all, shapes(conjunction[0]));
  TRY(narrow(all, Shape()));
  for (size_t i = 1; i < conjunction.size(); ++i) TRY(narrow(all, shapes(conjunction[i])));
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
    int64_t bytes = 0, cost = 0;
    for (const Shape& shape : known->second) {
      bytes += shape.held.bytes();
      cost += 60 + cost_of_copying(shape.held.bytes());
    }
    if (!fuel_.burn(cost) || !fuel_.has_room(bytes)) return out_of_fuel();
    return known->second;
  }
  const Value& schema = *literal.schema;
  if (schema.is(Value::Kind::kTrue) || schema.is(Value::Kind::kFalse))
    return schema.is(Value::Kind::kTrue) != literal.is_negated ? alone({}) : Shapes();
  if (!schema.is_object())
    return invalid("The schema at " + document_.pointer(&schema) + " is neither an object nor a boolean.",
                   document_.pointer(&schema));
  if (!fuel_.burn(50)) return out_of_fuel();
  const bool is_open = open_.contains(literal);
  leads_back_ |= is_open;
  if (++depth_ > kMaxLogicDepth || is_open) {
    --depth_;
    return invalid(
        "The schema at " + document_.pointer(&schema) + " leads back to itself before it says anything of a value.",
        document_.pointer(&schema));
  }
  open_.insert(literal);
  Result<Shapes> made = literal.is_negated ? read_negated(schema) : read(schema);
  open_.erase(literal);
  --depth_;
  if (!made) return made;
  if (literal.is_negated) {  // nothing that is refused evaluates, nor does what it refuses in turn
    for (Shape& shape : *made) {
      const auto silence = [&](auto& all) {
        for (auto& keywords : all) {
          const int64_t bytes = keywords->held.bytes();
          if (!keywords->evaluates) continue;
          if (!fuel_.burn(cost_of_copying(bytes)) || !fuel_.has_room(bytes)) return;
          keywords.change([](auto& changed) { changed.evaluates = false; });
        }
      };
      silence(shape.objects);
      silence(shape.arrays);
    }
  }
  if (fuel_.is_empty() || !fuel_.burn(static_cast<int64_t>(made->size()) * 100)) return out_of_fuel();
  int64_t bytes = 0;
  for (Shape& shape : *made) {
    if (!shape.held.set(fuel_, shape.bytes())) return out_of_fuel();
    bytes += shape.held.bytes();
  }
  if (!fuel_.has_room(bytes)) return out_of_fuel();
  return known_.emplace(literal, *std::move(made)).first->second;
}

Result<Shapes> SchemaLogic::read(const Value& schema) {
  Shapes all = alone({});
  // What cannot be held is told, and left out.
  auto hold = [&](const std::string& key, const Value& value) -> Status {
    Status done = read_keyword(schema, key, value, all);
    if (done || done.error().kind != ErrorKind::kUnsupported) return done;
    std::string why = done.error().message;
    if (!done.error().where.empty()) {  // refused within; an alternative that is refused by itself stays so
      if (key != "oneOf" || !options_.coerces_one_of) return done;
      why.pop_back();  // its full stop
    }
    TRY(cannot(&schema, key, why));
    if (key == "oneOf") TRY(narrow(all, any_of(schema, value)));
    return {};
  };
  const Value* ref = schema.find("$ref");
  if (ref != nullptr && document_.is_old()) {
    TRY(hold("$ref", *ref));
    return all;
  }
  TRY(read_arrays(schema, all[0]));
  TRY(read_objects(schema, all[0]));
  for (const auto& [key, value] : schema.members) TRY(hold(key, value));
  TRY(read_unevaluated(schema, all));
  Shapes settled;
  for (Shape& shape : all)
    if (shape.settle()) TRY(add(settled, std::move(shape)));
  return settled;
}

// Narrows `all`, or leaves it as it is and tells why.
Status SchemaLogic::read_keyword(const Value& schema, const std::string& key, const Value& value, Shapes& all) {
  if (!fuel_.burn(10)) return out_of_fuel();
  bool is_simple = true;
  Shape simple;
  TRY(read_simple(schema, key, value, simple, is_simple));
  if (is_simple) return narrow(all, simple);
  if (key == "$ref" || key == "$dynamicRef" || key == "$recursiveRef") {
    if (!value.is(Value::Kind::kString)) return no_schema(schema, key, "a string");
    ASSIGN_OR_RETURN(const Value* target, document_.resolve(&schema, value.text, key == "$dynamicRef"));
    return narrow(all, shapes(Literal{target, false}));
  }
  if (key == "allOf" || key == "anyOf" || key == "oneOf") {
    if (!value.is(Value::Kind::kArray) || value.items.empty()) return no_schema(schema, key, "a list of schemas");
    if (key == "anyOf") return narrow(all, any_of(schema, value));
    if (key == "oneOf") return narrow(all, one_of(value));
    Shapes made = all;
    for (const Value& part : value.items) TRY(narrow(made, shapes(Literal{&part, false})));
    all = std::move(made);
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
    TRY(append(yes, std::move(no)));
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
  if (report_ != nullptr && report_->ignored.size() < report_->most)
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
    Fuel trial(fuel_.left(), fuel_.bytes_left());
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
      if (report_ != nullptr && report_->ignored.size() < report_->most)
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

Result<Shapes> SchemaLogic::any_of(const Value& schema, const Value& list) {
  static_cast<void>(schema);
  Shapes all;
  for (const Value& part : list.items) {
    ASSIGN_OR_RETURN(Shapes made, shapes(Literal{&part, false}));
    TRY(append(all, std::move(made)));
  }
  // Several may hold at once, and then all of them have evaluated: unevaluated* asks.
  if (document_.has_unevaluated() && list.items.size() <= 4) {
    for (uint32_t set = 1; set < (1u << list.items.size()); ++set) {
      if ((set & (set - 1)) == 0) continue;
      Shapes together = alone({});
      for (size_t i = 0; i < list.items.size(); ++i)
        if (set >> i & 1) TRY(narrow(together, shapes(Literal{&list.items[i], false})));
      TRY(append(all, std::move(together)));
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
    TRY(append(all, std::move(made)));
  }
  return all;
}

Result<Shapes> SchemaLogic::dependent(const Value& value) {
  Shapes all = alone({});
  for (const auto& [name, then] : value.members) {
    Shapes choices = alone(Shape::only(kAllTypes & ~kObjectBit));
    choices.push_back(forbidden_member(name));
    Shape has = Shape::only(kObjectBit);
    has.require(name);
    if (then.is(Value::Kind::kArray) || then.is(Value::Kind::kString)) {
      for (const Value& other : then.as_list()) {
        if (!fuel_.burn(4 + static_cast<int64_t>(has.required.size()) / 4)) return out_of_fuel();
        if (!has.held.set(fuel_, has.held.bytes() + 2 * static_cast<int64_t>(sizeof other.text) + block_of(other.text)))
          return out_of_fuel();
        has.require(other.text);
      }
      choices.push_back(std::move(has));
    } else {
      Shapes with = alone(std::move(has));
      TRY(narrow(with, shapes(Literal{&then, false})));
      TRY(append(choices, std::move(with)));
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
  keywords.held.set(fuel_, static_cast<int64_t>(keywords.prefix.size()) * (2 * 24 + 32) + 128);
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
    const size_t n = properties->members.size();
    int64_t bytes = block(n * sizeof(made.properties[0])) + static_cast<int64_t>(n) * block(sizeof(Literal));
    for (const auto& [name, value] : properties->members) bytes += block_of(name);
    if (!fuel_.burn(8 * static_cast<int64_t>(n)) || !fuel_.has_room(bytes)) return out_of_fuel();
    made.held.set(fuel_, bytes);
    made.properties.reserve(n);
    for (const auto& [name, value] : properties->members) made.properties.push_back({name, one(value)});
  }
  if (const Value* patterns = schema.find("patternProperties")) {
    for (const auto& [regex, value] : patterns->members) {
      Result<Pattern> names = pattern(regex, false);
      if (!names) {
        if (names.error().kind != ErrorKind::kUnsupported) return std::move(names).error();
        TRY(cannot(&schema, "patternProperties", names.error().message));
        continue;
      }
      const auto bytes = static_cast<int64_t>(2 * sizeof(made.patterns[0])) + block(sizeof(Literal));
      if (!made.held.set(fuel_, made.held.bytes() + bytes)) return out_of_fuel();
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
      if (!made.held.set(fuel_, static_cast<int64_t>(n) * 24 + 128)) return out_of_fuel();
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
        const int64_t bytes = made.held.bytes() + keywords.held.bytes();
        if (!fuel_.burn(cost_of_copying(bytes)) || !made.held.set(fuel_, bytes)) return out_of_fuel();
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

}  // namespace ibid::grammar
