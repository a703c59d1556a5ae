// Whether a value is of a shape, and what a shape requires of its items and members.
#include <algorithm>

#include "base/utf8.h"
#include "sample/grammar/schema_logic.h"

namespace ibid::grammar {

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

// Whether it is clearly empty; an estimate in one direction.
Result<bool> SchemaLogic::is_empty(const Shape& shape, int depth) {
  Shape copy = shape;
  if (!copy.settle()) return true;
  // A text outside a narrowly read format may still be one of the format.
  const bool is_narrow = std::ranges::any_of(copy.patterns, [&](const Pattern& p) {
    const auto format = formats_.find(p.get());
    return format != formats_.end() && !format->second;
  });
  if (copy.values) {
    for (const Value* v : *copy.values) {
      if (is_narrow && v->is(Value::Kind::kString)) return false;
      ASSIGN_OR_RETURN(const bool is_held, fits(copy, *v));
      if (is_held) return false;
    }
    return true;
  }
  if (copy.types == kStringBit && copy.patterns.size() > 1) {
    // No text is of two formats if none is in the enforced parts of both.
    if (is_narrow && !std::ranges::all_of(copy.patterns, [&](const Pattern& p) { return formats_.contains(p.get()); }))
      return false;
    CodeDfa texts = CodeDfa::all();
    for (const Pattern& p : copy.patterns) {
      ASSIGN_OR_RETURN(texts, CodeDfa::combine(texts, *p, CodeDfa::How::kBoth, fuel_));
    }
    return texts.is_empty();
  }
  if (copy.types != kObjectBit || depth == 0) return false;
  for (const std::string& name : copy.required) {
    ASSIGN_OR_RETURN(const std::optional<Conjunction> value, member(copy, name));
    if (!value) return true;
    leads_back_ = false;
    const Result<Shapes> all = shapes(*value);
    if (!all && leads_back_) return false;  // a member's schema may depend on this question
    if (!all) return all.error();
    bool empty = true;
    for (const Shape& s : *all) {
      ASSIGN_OR_RETURN(const bool e, is_empty(s, depth - 1));
      empty &= e;
    }
    if (empty) return true;
  }
  return false;
}

Result<bool> SchemaLogic::holds(const Conjunction& conjunction, const Value& value) {
  // Computing a schema's shapes may check its values against others: levels of values and of schemas are frames of one
  // stack.
  if (depth_ >= kMaxLogicDepth) return invalid("The schema's values and schemas are nested too deeply together.");
  ++depth_;
  Result<bool> is_held = holds_any(conjunction, value);
  --depth_;
  return is_held;
}

Result<bool> SchemaLogic::holds_any(const Conjunction& conjunction, const Value& value) {
  ASSIGN_OR_RETURN(const Shapes all, shapes(conjunction));
  for (const Shape& shape : all) {
    ASSIGN_OR_RETURN(const bool is_held, holds(shape, value));
    if (is_held) return true;
  }
  return false;
}

Result<bool> SchemaLogic::holds(const Shape& shape, const Value& value) {
  if (shape.values) {
    int64_t cost = static_cast<int64_t>(shape.values->size()) / 2;
    for (const Value* v : *shape.values) cost += cost_of_comparing(*v, value);
    if (!fuel_.burn(cost)) return out_of_fuel();
    if (std::none_of(shape.values->begin(), shape.values->end(), [&](const Value* v) { return *v == value; }))
      return false;
  }
  return fits(shape, value);
}

Result<bool> SchemaLogic::fits(const Shape& shape, const Value& value) {
  const size_t n_excluded = shape.excluded_strings.size() / 8 + shape.numbers.excluded.size();
  if (!fuel_.burn(20 + static_cast<int64_t>(n_excluded))) return out_of_fuel();
  if (!(shape.types & bit_of(value))) return false;
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
        for (size_t j = 0; shape.unique != nullptr && j < i; ++j) {
          if (!fuel_.burn(1 + cost_of_comparing(value.items[i], value.items[j]))) return out_of_fuel();
          if (value.items[i] == value.items[j]) return false;
        }
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

}  // namespace ibid::grammar
