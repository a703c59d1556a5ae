#include "text/output/schema_check.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>

#include "base/utf8.h"
#include "text/tokenizer/pattern.h"

namespace ibid {
namespace {

const Json* find(const Json::Object& object, std::string_view key) {
  for (const Json::Member& member : object)
    if (member.first == key) return &member.second;
  return nullptr;
}

std::optional<double> number_at(const Json::Object& schema, std::string_view key) {
  const Json* value = find(schema, key);
  return value != nullptr && value->is_number() ? std::optional(value->number()) : std::nullopt;
}

bool is_true(const Json::Object& schema, std::string_view key) {
  const Json* value = find(schema, key);
  return value != nullptr && value->boolean() != nullptr && *value->boolean();
}

bool is_integer(const Json& value) {
  return value.integer() != nullptr || value.large_integer() != nullptr ||
         (value.real() != nullptr && std::floor(*value.real()) == *value.real());
}

bool is_of(const Json& value, std::string_view type) {
  return type == "null"      ? value.is_null()
         : type == "boolean" ? value.boolean() != nullptr
         : type == "integer" ? value.is_number() && is_integer(value)
         : type == "number"  ? value.is_number()
         : type == "string"  ? value.string() != nullptr
         : type == "array"   ? value.array() != nullptr
         : type == "object"  ? value.object() != nullptr
                             : true;
}

// What is between the slashes of a reference: ~1, ~0 and %XX stand for bytes.
std::string unescaped(std::string_view part) {
  const auto digit = [](char c) { return c <= '9' ? c - '0' : (c | 32) - 'a' + 10; };
  std::string out;
  for (size_t i = 0; i < part.size(); ++i) {
    const bool has_two = i + 2 < part.size() && std::isxdigit(static_cast<unsigned char>(part[i + 1])) != 0 &&
                         std::isxdigit(static_cast<unsigned char>(part[i + 2])) != 0;
    if (part[i] == '%' && has_two) {
      out += static_cast<char>(digit(part[i + 1]) * 16 + digit(part[i + 2]));
      i += 2;
    } else if (part[i] == '~' && i + 1 < part.size()) {
      out += part[++i] == '1' ? '/' : '~';
    } else {
      out += part[i];
    }
  }
  return out;
}

bool same_kind(const Json& a, const Json& b) {
  return (a.is_number() && b.is_number()) || (a.is_null() && b.is_null()) ||
         (a.boolean() != nullptr && b.boolean() != nullptr) || (a.string() != nullptr && b.string() != nullptr) ||
         (a.array() != nullptr && b.array() != nullptr) || (a.object() != nullptr && b.object() != nullptr);
}

}  // namespace

const Json* SchemaCheck::target(const Json& reference) const {
  if (reference.string() == nullptr || !reference.string()->starts_with('#')) return nullptr;
  std::string_view rest = std::string_view(*reference.string()).substr(1);
  const Json* at = &root_;
  while (at != nullptr && rest.starts_with('/')) {
    rest.remove_prefix(1);
    const std::string part = unescaped(rest.substr(0, rest.find('/')));
    rest.remove_prefix(std::min(rest.size(), rest.find('/')));
    if (const Json::Array* items = at->array(); items != nullptr) {
      size_t index = 0;
      for (const char c : part) index = c >= '0' && c <= '9' && index < items->size() ? index * 10 + (c - '0') : ~0u;
      at = !part.empty() && index < items->size() ? &(*items)[index] : nullptr;
    } else {
      at = at->find(part);
    }
  }
  return rest.empty() ? at : nullptr;
}

bool SchemaCheck::equals(const Json& a, const Json& b) {
  if (!take(1) || !same_kind(a, b)) return false;
  if (a.is_number()) return a.number() == b.number();
  if (a.string() != nullptr) return *a.string() == *b.string();
  if (a.boolean() != nullptr) return *a.boolean() == *b.boolean();
  if (a.array() != nullptr) {
    return std::ranges::equal(*a.array(), *b.array(), [&](const Json& x, const Json& y) { return equals(x, y); });
  }
  if (a.object() == nullptr) return true;
  return a.object()->size() == b.object()->size() && std::ranges::all_of(*a.object(), [&](const Json::Member& member) {
           const Json* other = take(static_cast<int64_t>(b.object()->size())) ? b.find(member.first) : nullptr;
           return other != nullptr && equals(member.second, *other);
         });
}

bool SchemaCheck::has_type(const Json& schema, const Json& value) const {
  const Json* type = schema.find("type");
  if (type == nullptr) return true;
  if (value.is_null() && is_true(*schema.object(), "nullable")) return true;  // OpenAPI 3.0
  if (type->string() != nullptr) return is_of(value, *type->string());
  return type->array() == nullptr || std::ranges::any_of(*type->array(), [&](const Json& one) {
           return one.string() == nullptr || is_of(value, *one.string());
         });
}

bool SchemaCheck::accepts(const Json& schema, const Json& value) {
  if (schema.boolean() != nullptr) return *schema.boolean();
  if (schema.object() == nullptr) return true;
  if (!take(1 + static_cast<int64_t>(schema.object()->size())) || depth_ >= kMaxDepth) return false;
  ++depth_;
  const bool is_valid = [&] {
    const Json::Object& members = *schema.object();
    if (!has_type(schema, value)) return false;
    const auto is_same = [&](const Json& one) {
      return how_ == How::kKind ? same_kind(one, value) : equals(one, value);
    };
    if (const Json* values = find(members, "enum"); values != nullptr && values->array() != nullptr)
      if (std::ranges::none_of(*values->array(), is_same)) return false;
    if (const Json* one = find(members, "const"); one != nullptr && !is_same(*one)) return false;
    if (!check_logic(members, value)) return false;
    if (how_ == How::kKind) return true;
    if (value.is_number()) return check_number(members, value.number());
    if (value.string() != nullptr) return check_string(members, *value.string());
    if (value.array() != nullptr) return check_array(members, *value.array());
    return value.object() == nullptr || check_object(members, *value.object());
  }();
  --depth_;
  return is_valid;
}

bool SchemaCheck::check_logic(const Json::Object& schema, const Json& value) {
  if (const Json* reference = find(schema, "$ref"); reference != nullptr) {
    const Json* to = target(*reference);
    if (to != nullptr && !accepts(*to, value)) return false;
  }
  const auto count = [&](const char* key, size_t enough) -> std::optional<std::pair<size_t, size_t>> {
    const Json* list = find(schema, key);
    if (list == nullptr || list->array() == nullptr) return std::nullopt;
    size_t n = 0;
    for (const Json& one : *list->array())
      if (n < enough) n += accepts(one, value) ? 1 : 0;
    return std::pair(n, list->array()->size());
  };
  if (const auto all = count("allOf", ~size_t{0}); all && all->first != all->second) return false;
  if (const auto any = count("anyOf", 1); any && any->first == 0) return false;
  // By kind alone more than one alternative may fit.
  if (const auto one = count("oneOf", 2); one && (one->first == 0 || (how_ == How::kExact && one->first > 1)))
    return false;
  if (how_ == How::kKind) return true;
  if (const Json* none = find(schema, "not"); none != nullptr && accepts(*none, value)) return false;
  if (const Json* condition = find(schema, "if"); condition != nullptr) {
    const Json* then = find(schema, accepts(*condition, value) ? "then" : "else");
    if (then != nullptr && !accepts(*then, value)) return false;
  }
  return true;
}

bool SchemaCheck::check_number(const Json::Object& schema, double value) const {
  const auto least = number_at(schema, "minimum"), most = number_at(schema, "maximum");
  const auto above = number_at(schema, "exclusiveMinimum"), below = number_at(schema, "exclusiveMaximum");
  if (least && (value < *least || (value == *least && is_true(schema, "exclusiveMinimum")))) return false;  // draft 4
  if (most && (value > *most || (value == *most && is_true(schema, "exclusiveMaximum")))) return false;
  if ((above && value <= *above) || (below && value >= *below)) return false;
  const auto step = number_at(schema, "multipleOf");
  if (!step || *step <= 0) return true;
  const double ratio = value / *step;
  return std::abs(ratio - std::round(ratio)) <= 1e-9 * std::max(1.0, std::abs(ratio));
}

bool SchemaCheck::matches(const Json& pattern, std::string_view text) {
  if (pattern.string() == nullptr || !take(1000 + static_cast<int64_t>(text.size()))) return false;
  const Result<Pattern> compiled = Pattern::compile(*pattern.string());
  if (!compiled) return true;
  Pattern::Budget budget = Pattern::Budget::of_text(text.size());
  Pattern::Found found{};
  return compiled->find(text, true, 0, budget, found);
}

bool SchemaCheck::check_string(const Json::Object& schema, const std::string& value) {
  const auto least = number_at(schema, "minLength"), most = number_at(schema, "maxLength");
  if (least || most) {
    const auto n = static_cast<double>(std::ranges::count_if(value, [](char c) { return !utf8::goes_on(c); }));
    if (n < least.value_or(n) || n > most.value_or(n)) return false;
  }
  const Json* pattern = find(schema, "pattern");
  return pattern == nullptr || matches(*pattern, value);
}

bool SchemaCheck::check_array(const Json::Object& schema, const Json::Array& value) {
  const auto n = static_cast<double>(value.size());
  if (n < number_at(schema, "minItems").value_or(n) || n > number_at(schema, "maxItems").value_or(n)) return false;
  const Json* items = find(schema, "items");
  const Json* first = find(schema, "prefixItems");
  const Json* rest = items;
  if (items != nullptr && items->array() != nullptr) first = items, rest = find(schema, "additionalItems");
  for (size_t i = 0; i < value.size(); ++i) {
    const bool is_listed = first != nullptr && first->array() != nullptr && i < first->array()->size();
    const Json* one = is_listed ? &(*first->array())[i] : rest;
    if (one != nullptr && !accepts(*one, value[i])) return false;
  }
  if (const Json* some = find(schema, "contains"); some != nullptr) {
    const auto found =
        static_cast<double>(std::ranges::count_if(value, [&](const Json& item) { return accepts(*some, item); }));
    if (found < number_at(schema, "minContains").value_or(1)) return false;
    if (found > number_at(schema, "maxContains").value_or(found)) return false;
  }
  if (!is_true(schema, "uniqueItems")) return true;
  for (size_t i = 0; i < value.size(); ++i)
    for (size_t k = 0; k < i; ++k)
      if (equals(value[i], value[k]) || n_steps_ > kMaxSteps) return false;
  return true;
}

bool SchemaCheck::check_object(const Json::Object& schema, const Json::Object& value) {
  const auto n = static_cast<double>(value.size());
  if (n < number_at(schema, "minProperties").value_or(n) || n > number_at(schema, "maxProperties").value_or(n))
    return false;
  const auto has_all = [&](const Json& names) {
    return names.array() == nullptr || std::ranges::all_of(*names.array(), [&](const Json& name) {
             return take(static_cast<int64_t>(value.size())) &&
                    (name.string() == nullptr || find(value, *name.string()) != nullptr);
           });
  };
  if (const Json* required = find(schema, "required"); required != nullptr && !has_all(*required)) return false;
  for (const char* key : {"dependentRequired", "dependencies", "dependentSchemas"}) {
    const Json* depends = find(schema, key);
    if (depends == nullptr || depends->object() == nullptr) continue;
    for (const auto& [name, needed] : *depends->object()) {
      if (find(value, name) == nullptr) continue;
      if (needed.array() != nullptr ? !has_all(needed) : !accepts(needed, Json(value))) return false;
    }
  }
  const Json* properties = find(schema, "properties");
  const Json* patterns = find(schema, "patternProperties");
  const Json* others = find(schema, "additionalProperties");
  const Json* names = find(schema, "propertyNames");
  const auto n_known = properties != nullptr && properties->object() != nullptr ? properties->object()->size() : 0;
  for (const auto& [name, member] : value) {
    if (!take(1 + static_cast<int64_t>(n_known))) return false;
    bool is_known = false;
    if (const Json* one = properties != nullptr ? properties->find(name) : nullptr; one != nullptr) {
      is_known = true;
      if (!accepts(*one, member)) return false;
    }
    if (patterns != nullptr && patterns->object() != nullptr) {
      for (const auto& [pattern, one] : *patterns->object()) {
        if (!matches(Json(pattern), name)) continue;
        is_known = true;
        if (!accepts(one, member)) return false;
      }
    }
    if (!is_known && others != nullptr && !accepts(*others, member)) return false;
    if (names != nullptr && !accepts(*names, Json(name))) return false;
  }
  return true;
}

bool SchemaCheck::accepts_any_string(const Json& schema) {
  if (schema.boolean() != nullptr) return *schema.boolean();
  if (schema.object() == nullptr) return true;
  if (!take(1 + static_cast<int64_t>(schema.object()->size())) || depth_ >= kMaxDepth) return false;
  const Json::Object& members = *schema.object();
  static const Json kAnyString(std::string("a"));
  if (!has_type(schema, kAnyString)) return false;
  for (const auto& [key, value] : members) {
    for (const char* word : {"enum", "const", "pattern", "maxLength", "not", "if"})
      if (key == word) return false;
    if (key == "minLength" && (!value.is_number() || value.number() > 0)) return false;
  }
  ++depth_;
  const auto does = [&](const Json& one) { return accepts_any_string(one); };
  const bool is_any = [&] {
    if (const Json* reference = find(members, "$ref"); reference != nullptr) {
      const Json* to = target(*reference);
      if (to != nullptr && !does(*to)) return false;
    }
    const auto list = [&](const char* key) -> const Json::Array* {
      const Json* value = find(members, key);
      return value != nullptr ? value->array() : nullptr;
    };
    if (list("allOf") != nullptr && !std::ranges::all_of(*list("allOf"), does)) return false;
    if (list("anyOf") != nullptr && std::ranges::none_of(*list("anyOf"), does)) return false;
    if (const Json::Array* one = list("oneOf"); one != nullptr) {
      SchemaCheck kinds(root_, How::kKind);
      const auto n_kinds = std::ranges::count_if(*one, [&](const Json& s) { return kinds.accepts(s, kAnyString); });
      if (n_kinds != 1 || std::ranges::none_of(*one, does)) return false;
    }
    return true;
  }();
  --depth_;
  return is_any;
}

}  // namespace ibid
