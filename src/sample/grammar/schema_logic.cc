#include "sample/grammar/schema_logic.h"

#include <algorithm>

#include "base/quoted.h"

namespace ibid::grammar {
namespace {

// Keywords that do not constrain values.
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

}  // namespace

Status SchemaLogic::cannot(const Value* schema, std::string_view keyword, std::string_view why) {
  const bool is_refused = options_.is_strict && !(keyword == "oneOf" && options_.coerces_one_of);
  if (!is_refused && (report_ == nullptr || report_->ignored.size() >= report_->most)) return {};
  std::string sentence =
      in_quotes(keyword) + " at " + document_.pointer(schema) + " cannot be held: " + std::string(why) + ".";
  if (is_refused) return unsupported(std::move(sentence), document_.pointer(schema));
  if (std::find(report_->ignored.begin(), report_->ignored.end(), sentence) == report_->ignored.end())
    report_->ignored.push_back(std::move(sentence));
  return {};
}

Error SchemaLogic::no_schema(const Value& schema, const std::string& key, std::string_view what) const {
  return invalid(in_quotes(key) + " at " + document_.pointer(&schema) + " must be " + std::string(what) + ".",
                 document_.pointer(&schema));
}

namespace {

size_t size_of(const Shape& s) { return s.objects.size() + s.arrays.size() + s.patterns.size() + s.required.size(); }

// Each value of one is looked up among those of the other, and each name; for objects each member among all.
int64_t cost_of_meeting(const Shape& a, const Shape& b) {
  const size_t n_pairs = a.values && b.values ? a.values->size() * b.values->size() : 0;
  const size_t n_names = a.required.size() * b.required.size();
  auto cost = static_cast<int64_t>(100 + 20 * (size_of(a) + size_of(b)) + n_pairs / 2 + n_names / 8);
  if (n_pairs == 0) return cost;
  if (cost > kCompileSteps) return cost;
  const auto is_cheap = [](const Value* v) {
    return v->n_values == 1 && v->n_bytes < 32 && (!v->is(Value::Kind::kNumber) || v->is_plain);
  };
  if (std::ranges::all_of(*a.values, is_cheap) && std::ranges::all_of(*b.values, is_cheap)) return cost;
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
    loses_ |= losing_.contains(literal);
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
  if (is_open || depth_ >= kMaxLogicDepth)
    return invalid("The schema at " + document_.pointer(&schema) +
                       (is_open ? " refers back to itself before it constrains a value."
                                : " is at the end of too long a chain of references."),
                   document_.pointer(&schema));
  ++depth_;
  open_.insert(literal);
  const bool lost = std::exchange(loses_, false);
  Result<Shapes> made = literal.is_negated ? read_negated(schema) : read(schema);
  loses_ &= !literal.is_negated;  // nothing that is refused evaluates
  if (loses_ && losing_.insert(literal).second) held_.add(block(sizeof(Literal) + 32));
  loses_ |= lost;
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
  // What cannot be enforced is reported, and left out.
  auto hold = [&](const std::string& key, const Value& value) -> Status {
    Status done = read_keyword(schema, key, value, all);
    if (done || done.error().kind != ErrorKind::kUnsupported) return done;
    std::string why = done.error().message;
    if (!done.error().where.empty()) {  // refused within; an alternative that is refused by itself stays so
      if (key != "oneOf" || !options_.coerces_one_of) return done;
      why.pop_back();  // its full stop
    }
    TRY(cannot(&schema, key, why));
    if (key == "oneOf") TRY(narrow(all, any_of(value)));
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
  for (const char* key : {"unevaluatedItems", "unevaluatedProperties"})
    if (loses_ && schema.find(key) != nullptr)
      TRY(cannot(&schema, key, "of more than 4 alternatives that may hold at once one alone evaluates"));
  TRY(read_unevaluated(schema, all));
  Shapes settled;
  for (Shape& shape : all)
    if (shape.settle()) TRY(add(settled, std::move(shape)));
  return settled;
}

// Narrows `all`, or leaves it unchanged and reports why.
Status SchemaLogic::read_keyword(const Value& schema, const std::string& key, const Value& value, Shapes& all) {
  if (!fuel_.burn(10)) return out_of_fuel();
  bool is_simple = true;
  Shape simple;
  TRY(read_simple(schema, key, value, simple, is_simple));
  if (is_simple) return narrow(all, simple);
  TRY(check_keyword(schema, key, value));
  if (key == "$ref" || key == "$dynamicRef" || key == "$recursiveRef") {
    ASSIGN_OR_RETURN(const Value* target, document_.resolve(&schema, value.text, key == "$dynamicRef", fuel_));
    return narrow(all, shapes(Literal{target, false}));
  }
  if (key == "allOf" || key == "anyOf" || key == "oneOf") {
    if (key == "anyOf") return narrow(all, any_of(value));
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
  // By the standard an unknown keyword is an annotation; it is reported nevertheless.
  if (report_ != nullptr && report_->ignored.size() < report_->most)
    report_->ignored.push_back(in_quotes(key) + " at " + document_.pointer(&schema) + " is not a known keyword.");
  return {};
}

Result<Shapes> SchemaLogic::any_of(const Value& list) {
  Shapes all;
  for (const Value& part : list.items) {
    ASSIGN_OR_RETURN(Shapes made, shapes(Literal{&part, false}));
    TRY(append(all, std::move(made)));
  }
  // Several may hold at once, and then all of them have evaluated: unevaluated* needs that.
  if (document_.has_unevaluated() && list.items.size() > 4) {
    ASSIGN_OR_RETURN(const bool loses, may_evaluate_together(list));
    loses_ |= loses;
  } else if (document_.has_unevaluated()) {
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
  const bool lost = loses_;
  ASSIGN_OR_RETURN(const Shapes all, shapes(both(one(a), one(b))));
  loses_ = lost;  // alternatives report it where they are read
  for (const Shape& shape : all) {
    ASSIGN_OR_RETURN(const bool empty, is_empty(shape, 2));
    if (!empty) return false;
  }
  return true;
}

Result<bool> SchemaLogic::may_evaluate_together(const Value& list) {
  const auto evaluate = [](const auto& all) {
    return std::ranges::any_of(all, [](const auto& k) { return k->evaluates; });
  };
  const bool lost = loses_;
  std::vector<uint8_t> evaluated;  // for each alternative, the types whose parts it evaluates
  for (const Value& part : list.items) {
    ASSIGN_OR_RETURN(const Shapes made, shapes(Literal{&part, false}));
    uint8_t types = 0;
    for (const Shape& shape : made)
      types |=
          static_cast<uint8_t>((evaluate(shape.objects) ? kObjectBit : 0) | (evaluate(shape.arrays) ? kArrayBit : 0));
    evaluated.push_back(types);
  }
  for (size_t i = 0; i < list.items.size(); ++i)
    for (size_t j = i + 1; j < list.items.size(); ++j) {
      if (!fuel_.burn(1)) return out_of_fuel();
      const uint8_t types = evaluated[i] & evaluated[j];
      if (types == 0) continue;
      ASSIGN_OR_RETURN(const Shapes together, shapes(both(one(list.items[i]), one(list.items[j]))));
      for (const Shape& shape : together)
        for (const uint8_t type : {kObjectBit, kArrayBit}) {
          Shape of_type = shape;
          of_type.types &= static_cast<uint8_t>(types & type);
          ASSIGN_OR_RETURN(const bool empty, is_empty(of_type, 2));
          if (!empty) return true;
        }
    }
  loses_ = lost;  // the query here is not part of the schema
  return false;
}

Result<Shapes> SchemaLogic::one_of(const Value& list) {
  const size_t n = list.items.size();
  std::vector<std::pair<size_t, size_t>> overlaps;
  for (size_t i = 0; i < n; ++i)
    for (size_t j = i + 1; j < n; ++j) {
      ASSIGN_OR_RETURN(const bool disjoint, are_disjoint(list.items[i], list.items[j]));
      if (!disjoint) overlaps.push_back({i, j});
    }
  Shapes all;
  for (size_t i = 0; i < n; ++i) {
    ASSIGN_OR_RETURN(Shapes made, shapes(Literal{&list.items[i], false}));
    for (const auto& [a, b] : overlaps) {
      if (a != i && b != i) continue;
      const size_t j = a == i ? b : a;
      TRY(narrow(made, shapes(Literal{&list.items[j], true})));
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

}  // namespace ibid::grammar
