#include "sample/grammar/schema_document.h"

#include <algorithm>
#include <array>

#include "base/quoted.h"
#include "sample/grammar/text_reader.h"

namespace ibid::grammar {
namespace {

// RFC 3986, section 5.2, for URIs as schemas have them.
std::string joined(const std::string& base, std::string_view reference) {
  const std::string_view ref = reference.substr(0, reference.find('#'));
  if (ref.empty()) return base;
  const size_t colon = ref.find(':');
  if (colon != std::string_view::npos && ref.substr(0, colon).find('/') == std::string_view::npos)
    return std::string(ref);
  const size_t scheme = base.find("://");
  const size_t authority_end = scheme == std::string::npos ? 0 : std::min(base.find('/', scheme + 3), base.size());
  if (ref.starts_with("//")) return base.substr(0, base.find(':') + 1) + std::string(ref);
  std::string path;
  if (ref[0] == '/') {
    path = ref;
  } else {
    const size_t slash = base.rfind('/');
    path = slash != std::string::npos && slash >= authority_end ? base.substr(authority_end, slash + 1 - authority_end)
                                                                : "/";
    if (scheme == std::string::npos && slash == std::string::npos) path.clear();
    path += ref;
  }
  std::vector<std::string> parts;
  const bool is_rooted = path.starts_with('/');
  for (size_t i = is_rooted ? 1 : 0; i <= path.size();) {
    const size_t end = std::min(path.find('/', i), path.size());
    const std::string part = path.substr(i, end - i);
    if (part == "..") {
      if (!parts.empty()) parts.pop_back();
    } else if (part != ".") {
      parts.push_back(part);
    }
    i = end + 1;
  }
  std::string made = base.substr(0, authority_end);
  for (size_t i = 0; i < parts.size(); ++i) made += (i > 0 || is_rooted ? "/" : "") + parts[i];
  return made;
}

std::string unescaped(std::string_view step) {
  std::string percent, made;
  for (size_t i = 0; i < step.size(); ++i) {
    if (step[i] == '%' && i + 2 < step.size() && TextReader::hex_digit(step[i + 1]) >= 0 &&
        TextReader::hex_digit(step[i + 2]) >= 0) {
      percent += static_cast<char>(TextReader::hex_digit(step[i + 1]) * 16 + TextReader::hex_digit(step[i + 2]));
      i += 2;
    } else {
      percent += step[i];
    }
  }
  for (size_t i = 0; i < percent.size(); ++i) {
    if (percent[i] == '~' && i + 1 < percent.size() && (percent[i + 1] == '0' || percent[i + 1] == '1')) {
      made += percent[++i] == '0' ? '~' : '/';
    } else {
      made += percent[i];
    }
  }
  return made;
}

std::string escaped(std::string_view step) {
  std::string made;
  for (char c : step) made += c == '~' ? "~0" : c == '/' ? "~1" : std::string(1, c);
  return made;
}

constexpr std::array<std::string_view, 13> kOneSchema = {"additionalProperties",
                                                         "unevaluatedProperties",
                                                         "propertyNames",
                                                         "items",
                                                         "additionalItems",
                                                         "unevaluatedItems",
                                                         "contains",
                                                         "not",
                                                         "if",
                                                         "then",
                                                         "else",
                                                         "contentSchema",
                                                         ""};
constexpr std::array<std::string_view, 5> kLists = {"allOf", "anyOf", "oneOf", "prefixItems", "items"};
constexpr std::array<std::string_view, 6> kMaps = {"properties",  "patternProperties", "$defs",
                                                   "definitions", "dependentSchemas",  "dependencies"};

// What stands one step of a pointer further. nullptr: nothing.
const Value* following(const Value& at, const std::string& step) {
  if (!at.is(Value::Kind::kArray)) return at.find(step);
  size_t index = 0;
  for (char c : step) index = c >= '0' && c <= '9' ? index * 10 + static_cast<size_t>(c - '0') : at.items.size();
  return !step.empty() && step.size() < 9 && index < at.items.size() ? &at.items[index] : nullptr;
}

int64_t cost_of_step(const Value& at) { return 1 + static_cast<int64_t>(at.members.size()) / 16; }

// "/definitions/name": there is a schema, whatever else there is.
bool is_definition(std::string_view pointer) {
  const size_t end = pointer.find('/', 1);
  if (end == std::string_view::npos || pointer.find('/', end + 1) != std::string_view::npos) return false;
  return pointer.substr(1, end - 1) == "definitions" || pointer.substr(1, end - 1) == "$defs";
}

void number_values(Value& value, uint32_t& n) {
  value.place = ++n;
  value.n_bytes = static_cast<uint32_t>(value.text.size());
  for (Value& item : value.items) number_values(item, n), value.n_bytes += item.n_bytes;
  for (auto& [key, member] : value.members)
    number_values(member, n), value.n_bytes += member.n_bytes + static_cast<uint32_t>(key.size());
  value.n_values = n + 1 - value.place;
}

}  // namespace

Result<SchemaDocument> SchemaDocument::read(std::string_view json, Fuel& fuel) {
  SchemaDocument made;
  made.held_ = Held(fuel);
  ASSIGN_OR_RETURN(Value root, read_value(json, fuel, made.held_));
  uint32_t n_values = 0;
  number_values(root, n_values);
  made.root_ = std::make_shared<const Value>(std::move(root));
  if (const Value* draft = made.root_->find("$schema"))
    for (const char* old : {"draft-03", "draft-04", "draft-06", "draft-07"})
      made.is_old_ |= draft->text.find(old) != std::string::npos;
  TRY(made.walk(*made.root_, nullptr, "#", "", fuel));
  made.resources_.try_emplace("", made.root_.get());
  TRY(made.walk_referred(fuel));
  return made;
}

// Schemas need not stand below keywords: a reference makes one of what it leads to.
Status SchemaDocument::walk_referred(Fuel& fuel) {
  for (size_t i = 0; i < referring_.size(); ++i) {  // which grows
    const Value& from = *referring_[i];
    const std::string& reference = from.find("$ref")->text;
    const size_t hash = reference.find("#/");
    if (hash == std::string::npos || is_definition(std::string_view(reference).substr(hash + 1))) continue;
    if (!fuel.burn(20 + static_cast<int64_t>(reference.size()))) return out_of_fuel();
    auto resource = resources_.find(joined(places_.at(&from).base, reference));
    const Value* at = resource == resources_.end() ? nullptr : resource->second;
    const Value* parent = at;
    size_t from_parent = hash + 1;
    for (size_t begin = hash + 1; at != nullptr && begin < reference.size();) {
      const size_t end = std::min(reference.find('/', begin + 1), reference.size());
      if (!fuel.burn(cost_of_step(*at))) return out_of_fuel();
      at = following(*at, unescaped(std::string_view(reference).substr(begin + 1, end - begin - 1)));
      begin = end;
      if (at == nullptr || end == reference.size() || !places_.contains(at)) continue;
      parent = at;
      from_parent = end;
    }
    if (at == nullptr || !at->is_object() || places_.contains(at) || at->find("$id") != nullptr) continue;
    TRY(walk(*at, parent, reference.substr(from_parent + 1), places_.at(parent).base, fuel));
  }
  return {};
}

Status SchemaDocument::walk(const Value& schema, const Value* parent, std::string step, std::string base, Fuel& fuel) {
  if (!fuel.burn(40 + static_cast<int64_t>(step.size() + base.size()) / 4)) return out_of_fuel();
  if (places_.contains(&schema)) return {};  // within what a reference led to
  // A place, and what may be known of it by names: each with its node of a table, and its texts.
  const int64_t a_place = sizeof(Place) + 64 + block_of(step) + block_of(base);
  if (!held_.add(a_place)) return out_of_fuel();
  const bool ref_rules = is_old_ && schema.find("$ref") != nullptr;
  const Value* id = schema.find(is_old_ && schema.find("$id") == nullptr ? "id" : "$id");
  if (id != nullptr && id->is(Value::Kind::kString) && !ref_rules) {
    const size_t hash = id->text.find('#');
    if (hash != 0) {
      is_one_resource_ &= parent == nullptr;
      base = joined(base, id->text);
      held_.add(128 + block_of(base));
      resources_.try_emplace(base, &schema);
    }
    if (hash != std::string::npos && hash + 1 < id->text.size()) {
      held_.add(128 + block_of(base) + block_of(id->text));
      anchors_.try_emplace({base, id->text.substr(hash + 1)}, &schema);
    }
  }
  for (const char* key : {"$anchor", "$dynamicAnchor"}) {
    const Value* anchor = schema.find(key);
    if (anchor == nullptr || !anchor->is(Value::Kind::kString)) continue;
    held_.add((key[1] == 'd' ? 288 : 128) + block_of(base) + 2 * block_of(anchor->text));
    anchors_.try_emplace({base, anchor->text}, &schema);
    if (key[1] == 'd') dynamic_anchors_[anchor->text].push_back(&schema);
  }
  has_unevaluated_ |= schema.find("unevaluatedProperties") != nullptr || schema.find("unevaluatedItems") != nullptr;
  if (const Value* ref = schema.find("$ref"); ref != nullptr && ref->is(Value::Kind::kString))
    if (make_room(referring_, 1, held_)) referring_.push_back(&schema);
  places_.emplace(&schema, Place{parent, std::move(step), base});
  return walk_children(schema, base, fuel);
}

Status SchemaDocument::walk_children(const Value& schema, const std::string& base, Fuel& fuel) {
  for (const auto& [key, value] : schema.members) {
    if (value.is(Value::Kind::kArray) && std::find(kLists.begin(), kLists.end(), key) != kLists.end()) {
      for (size_t i = 0; i < value.items.size(); ++i)
        TRY(walk(value.items[i], &schema, key + "/" + std::to_string(i), base, fuel));
    } else if (value.is_object() && std::find(kMaps.begin(), kMaps.end(), key) != kMaps.end()) {
      for (const auto& [name, child] : value.members) TRY(walk(child, &schema, key + "/" + escaped(name), base, fuel));
    } else if (std::find(kOneSchema.begin(), kOneSchema.end(), key) != kOneSchema.end()) {
      TRY(walk(value, &schema, key, base, fuel));
    }
  }
  return {};
}

std::string SchemaDocument::pointer(const Value* schema) const {
  std::string made;
  for (auto at = places_.find(schema); at != places_.end(); at = places_.find(at->second.parent)) {
    made = made.empty() ? at->second.step : at->second.step + "/" + made;
    if (at->second.parent == nullptr) break;
  }
  // A client's own names stand in it: what it is shown in stays short.
  constexpr size_t kMost = 400;
  return made.empty() ? "#" : made.size() <= kMost ? made : shown(made, kMost);
}

Result<const Value*> SchemaDocument::resolve(const Value* schema, std::string_view reference, bool is_dynamic,
                                             Fuel& fuel) const {
  auto place = places_.find(schema);
  const std::string base = joined(place == places_.end() ? "" : place->second.base, reference);
  const size_t hash = reference.find('#');
  const std::string_view fragment = hash == std::string_view::npos ? "" : reference.substr(hash + 1);
  auto resource = resources_.find(base);
  if (resource == resources_.end())
    return unsupported("the document has no schema " + in_quotes(reference) + ", and others are not fetched");
  if (!fragment.empty() && fragment[0] != '/') {
    auto anchor = anchors_.find({base, unescaped(fragment)});
    if (anchor == anchors_.end()) return unsupported("the document has no anchor " + in_quotes(reference));
    auto dynamic = dynamic_anchors_.find(unescaped(fragment));
    if (is_dynamic && dynamic != dynamic_anchors_.end() && dynamic->second.size() > 1)
      return unsupported("it may mean several schemas, by where it is evaluated");
    return anchor->second;
  }
  const Value* at = resource->second;
  for (size_t i = 0; i < fragment.size();) {
    const size_t end = std::min(fragment.find('/', i + 1), fragment.size());
    const std::string step = unescaped(fragment.substr(i + 1, end - i - 1));
    if (!fuel.burn(cost_of_step(*at))) return out_of_fuel();
    const Value* next = following(*at, step);
    if (next == nullptr) return unsupported("the document has nothing at " + in_quotes(reference));
    at = next;
    i = end;
  }
  if (!at->is_object() && !at->is(Value::Kind::kTrue) && !at->is(Value::Kind::kFalse))
    return unsupported("at " + in_quotes(reference) + " the document has no schema");
  if (at->is_object() && !places_.contains(at) && at->find("$id") != nullptr)
    return unsupported("it leads to a schema with an $id of its own outside of all keywords");
  return at;
}

}  // namespace ibid::grammar
