// The keywords of an array's items and an object's members.
#include <algorithm>

#include "sample/grammar/schema_logic.h"

namespace ibid::grammar {

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
    TRY(check_keyword(schema, "properties", *properties));
    const size_t n = properties->members.size();
    int64_t bytes = block(n * sizeof(made.properties[0])) + static_cast<int64_t>(n) * block(sizeof(Literal));
    for (const auto& [name, value] : properties->members) bytes += block_of(name);
    if (!fuel_.burn(8 * static_cast<int64_t>(n)) || !fuel_.has_room(bytes)) return out_of_fuel();
    made.held.set(fuel_, bytes);
    made.properties.reserve(n);
    for (const auto& [name, value] : properties->members) made.properties.push_back({name, one(value)});
  }
  if (const Value* patterns = schema.find("patternProperties")) {
    TRY(check_keyword(schema, "patternProperties", *patterns));
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
    constexpr uint32_t kMostCounted = 10'000;  // each is a state
    if ((shape.max_length != kUnbounded && shape.max_length > kMostCounted) || shape.min_length > kMostCounted)
      return unsupported("names of such lengths are not counted");
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

Result<Pattern> SchemaLogic::unknown_names(const ObjectKeywords& keywords) {
  std::vector<std::string_view> texts;
  for (const auto& [name, schemas] : keywords.properties) texts.push_back(name);
  ASSIGN_OR_RETURN(CodeDfa names, CodeDfa::one_of(texts, fuel_));
  for (const auto& [more, schemas] : keywords.patterns) {
    ASSIGN_OR_RETURN(names, CodeDfa::combine(names, *more, CodeDfa::How::kEither, fuel_));
  }
  ASSIGN_OR_RETURN(names, names.complement(fuel_));
  return Pattern(std::make_shared<const CodeDfa>(std::move(names)));
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
