#include "text/output/argument_types.h"

#include <algorithm>
#include <utility>

#include "base/json_writer.h"
#include "text/output/argument_reader.h"
#include "text/output/markers.h"
#include "text/output/schema_check.h"
#include "text/tokenizer/pattern.h"

namespace ibid {
namespace {

constexpr int kMaxDepth = 16;    // of schemas that are parts of one object's
constexpr int kMaxParts = 1000;  // of them
constexpr JsonLimits kLastKeyCounts = {.last_key_counts = true};

std::string_view trimmed(std::string_view text) {
  text.remove_prefix(markers::n_blank(text));
  while (!text.empty() && markers::is_blank(text.back())) text.remove_suffix(1);
  return text;
}

std::string json_string(std::string_view text) {
  std::string out;
  JsonWriter(out).string(text);
  return out;
}

}  // namespace

std::string json_of_python(std::string_view text) {
  ArgumentReader reader(ArgumentReader::Dialect::kPython);
  std::string out;
  for (const char c : "(v=" + std::string(text)) {
    if (c != '\0' && reader.feed(c, out) != ArgumentReader::Verdict::kMore) return {};
  }
  if (reader.feed(')', out) != ArgumentReader::Verdict::kDone) return {};
  const std::string_view begin = "{\"v\":";
  const std::string value = out.substr(begin.size(), out.size() - begin.size() - 1);
  return parse_json(value, "a value", kLastKeyCounts) ? value : std::string();
}

ArgumentType::ArgumentType(std::shared_ptr<const Json> root, Json schema)
    : root_(std::move(root)), schema_(std::move(schema)) {
  SchemaCheck kinds(*root_, SchemaCheck::How::kKind);
  takes_any_string_ = SchemaCheck(*root_).accepts_any_string(schema_);
  takes_null_ = kinds.accepts(schema_, Json());
  takes_strings_ = kinds.accepts(schema_, Json(std::string("a")));
  const std::vector<Json> others = {Json(true), Json(int64_t{1}), Json(0.5), Json(Json::Array()), Json(Json::Object())};
  takes_strings_alone_ =
      takes_strings_ && std::ranges::none_of(others, [&](const Json& v) { return kinds.accepts(schema_, v); });
}

// The same rule as in read().
bool ArgumentType::is_string_already(std::string_view begin, ValueHint hint) const {
  begin = trimmed(begin);
  if (begin.empty()) return false;
  if (takes_null_ && hint != ValueHint::kText && std::string_view("null").starts_with(begin)) return false;
  if (takes_any_string_ && hint != ValueHint::kJson) return true;
  if (takes_null_ && std::string_view("None").starts_with(begin)) return false;
  return takes_strings_alone_ && begin[0] != '"' && begin[0] != '\'';
}

std::string ArgumentType::read(std::string_view text, ValueHint hint) const {
  const std::string_view inner = trimmed(text);
  std::string json(inner);
  Result<Json> value = parse_json(json, "a value", kLastKeyCounts);
  const bool is_python = !value;
  if (is_python) {
    json = json_of_python(inner);
    value = parse_json(json, "a value", kLastKeyCounts);
  }
  if (!value) return json_string(text);
  if (root_ == nullptr)
    return hint == ValueHint::kJson || (hint == ValueHint::kNone && inner == "null") ? json : json_string(text);
  const bool is_valid_json = SchemaCheck(*root_).accepts(schema_, *value);
  const bool is_valid_text =
      takes_any_string_ || (takes_strings_ && SchemaCheck(*root_).accepts(schema_, Json(std::string(text))));
  const bool is_null_value = value->is_null() && !is_python && hint != ValueHint::kText;
  if (is_valid_text) return is_valid_json && (is_null_value || hint == ValueHint::kJson) ? json : json_string(text);
  if (is_valid_json) return json;
  return takes_strings_ && (hint != ValueHint::kJson || takes_strings_alone_) ? json_string(text) : json;
}

ArgumentTypes::ArgumentTypes(std::shared_ptr<const Json> parameters) : root_(std::move(parameters)) {
  if (root_ == nullptr) return;
  add(*root_, false, 0);
  for (const auto& [name, found] : found_) {
    Json::Array all, any;
    for (const Json* schema : found.all) all.push_back(*schema);
    for (const Json* schema : found.any) any.push_back(*schema);
    if (!any.empty()) all.emplace_back(Json::Object{{"anyOf", Json(std::move(any))}});
    types_.emplace(name, ArgumentType(root_, all.size() == 1 ? std::move(all[0])
                                                             : Json(Json::Object{{"allOf", Json(std::move(all))}})));
  }
  found_.clear();
}

// Several schemas may describe an object: all of them declare members, and so does each alternative.
void ArgumentTypes::add(const Json& schema, bool is_one_of_several, int depth) {
  if (depth > kMaxDepth || schema.object() == nullptr || ++n_read_ > kMaxParts) return;
  const Json* properties = schema.find("properties");
  if (properties != nullptr && properties->object() != nullptr) {
    for (const auto& [name, property] : *properties->object()) {
      Found& found = found_[name];
      std::vector<const Json*>& known = is_one_of_several ? found.any : found.all;
      if (std::ranges::find(known, &property) == known.end() && known.size() < kMaxDepth) known.push_back(&property);
    }
  }
  const Json* patterns = schema.find("patternProperties");
  if (patterns != nullptr && patterns->object() != nullptr) {
    for (const auto& [pattern, property] : *patterns->object())
      if (patterns_.size() < kMaxDepth) patterns_.emplace_back(pattern, ArgumentType(root_, property));
  }
  const Json* others = schema.find("additionalProperties");
  if (others != nullptr && others->object() != nullptr) other_ = ArgumentType(root_, *others);
  const Json* required = schema.find("required");
  if (!is_one_of_several && required != nullptr && required->array() != nullptr) {
    for (const Json& name : *required->array())
      if (name.string() != nullptr) required_.push_back(*name.string());
  }
  if (const Json* reference = schema.find("$ref"); reference != nullptr) {
    const Json* to = SchemaCheck(*root_).target(*reference);
    if (to != nullptr) add(*to, is_one_of_several, depth + 1);
  }
  for (const char* key : {"allOf", "anyOf", "oneOf"}) {
    const Json* parts = schema.find(key);
    const bool is_any = is_one_of_several || std::string_view(key) != "allOf";
    for (size_t i = 0; parts != nullptr && parts->array() != nullptr && i < parts->array()->size(); ++i)
      add((*parts->array())[i], is_any, depth + 1);
  }
  for (const char* key : {"then", "else"})
    if (const Json* part = schema.find(key); part != nullptr) add(*part, true, depth + 1);
}

const ArgumentType& ArgumentTypes::of(const std::string& name) const {
  if (const auto found = types_.find(name); found != types_.end()) return found->second;
  for (const auto& [pattern, type] : patterns_) {
    const Result<Pattern> compiled = Pattern::compile(pattern);
    Pattern::Budget budget = Pattern::Budget::of_text(name.size());
    Pattern::Found at{};
    if (compiled && compiled->find(name, true, 0, budget, at)) return type;
  }
  return other_;
}

}  // namespace ibid
