#include "server/fields/parameters.h"

#include <algorithm>
#include <cfloat>
#include <cmath>

#include "base/json_writer.h"
#include "server/fields/read_fields.h"

namespace ibid {

std::string number_text(double value) {
  std::string text;
  JsonWriter(text).number(value);
  return value == 2147483647.0 ? "2147483647" : text;
}

namespace {

bool has_range(const Parameter& p) { return p.min != p.max; }

Result<std::vector<std::string>> read_strings(const Json& value, const ApiLimits& limits, const std::string& where) {
  std::vector<std::string> strings;
  if (const std::string* text = value.string()) {
    strings.push_back(*text);
  } else if (const Json::Array* array = value.array()) {
    for (size_t i = 0; i < array->size(); ++i) {
      const std::string* item = (*array)[i].string();
      if (item == nullptr) return wrong_value(where + "[" + std::to_string(i) + "]", "a text", (*array)[i]);
      strings.push_back(*item);
    }
  } else {
    return wrong_value(where, "a text or an array of texts", value);
  }
  size_t n_bytes = 0;
  for (const std::string& s : strings) {
    if (s.empty()) return invalid(where + " has an empty text; each must have at least one character.", where);
    n_bytes += s.size();
  }
  if (strings.size() > static_cast<size_t>(limits.max_stops) || n_bytes > static_cast<size_t>(limits.max_stop_bytes)) {
    return invalid(where + " has " + std::to_string(strings.size()) + " texts of " + std::to_string(n_bytes) +
                       " bytes; at most " + std::to_string(limits.max_stops) + " of " +
                       std::to_string(limits.max_stop_bytes) + " bytes together are served.",
                   where);
  }
  return strings;
}

const char* name_of(unsigned endpoints) {
  return endpoints == kBoth ? "both" : endpoints == kChatOnly ? "chat" : "completions";
}

}  // namespace

const Parameter* find_parameter(std::string_view name) {
  const std::span<const Parameter> all = parameters();
  const auto found =
      std::ranges::find_if(all, [&](const Parameter& p) { return p.endpoints == kBoth && p.name == name; });
  return found != all.end() ? &*found : nullptr;
}

std::string describe_type(const Parameter& p) {
  switch (p.type) {
    case FieldType::kInteger:
      return "a whole number from " + number_text(p.min) + " to " + number_text(p.max);
    case FieldType::kNumber:
      return std::string("a number ") + (p.above_min ? "above " : "from ") + number_text(p.min) + " to " +
             number_text(p.max);
    case FieldType::kBoolean:
      return "true or false";
    case FieldType::kString:
      return "a text" + (has_range(p) ? " of at most " + number_text(p.max) + " bytes" : std::string());
    case FieldType::kStrings:
      return "a text or an array of texts";
    case FieldType::kTokenIds:
      return "an array of token ids";
    case FieldType::kOther:
      return "as in its schema";
  }
  return "";
}

Status read_parameter(const Parameter& p, const Json& value, const ApiLimits& limits, ApiRequest& request) {
  const std::string where = p.name;
  if (const auto* read = std::get_if<ReadField>(&p.target)) return (*read)(request, value, limits);
  if (auto* member = std::get_if<float SamplingParams::*>(&p.target)) {
    ASSIGN_OR_RETURN(const double number, read_number(value, p.min, p.max, p.above_min, where));
    // What is above the bound stays above it where a float has no room for the difference.
    const float next = p.above_min ? std::nextafter(static_cast<float>(p.min), FLT_MAX) : -FLT_MAX;
    request.sampling.** member = std::max(static_cast<float>(number), next);
    return {};
  }
  const auto* sampling_integer = std::get_if<int32_t SamplingParams::*>(&p.target);
  const auto* integer = std::get_if<int32_t ApiRequest::*>(&p.target);
  if (sampling_integer != nullptr || integer != nullptr) {
    ASSIGN_OR_RETURN(const int64_t whole,
                     read_integer(value, static_cast<int64_t>(p.min), static_cast<int64_t>(p.max), where));
    (integer != nullptr ? request.**integer : request.sampling.**sampling_integer) = static_cast<int32_t>(whole);
    return {};
  }
  const auto* sampling_boolean = std::get_if<bool SamplingParams::*>(&p.target);
  const auto* boolean = std::get_if<bool ApiRequest::*>(&p.target);
  if (sampling_boolean != nullptr || boolean != nullptr) {
    if (value.boolean() == nullptr) return wrong_value(where, describe_type(p), value);
    (boolean != nullptr ? request.**boolean : request.sampling.**sampling_boolean) = *value.boolean();
    return {};
  }
  if (const auto* text = std::get_if<std::string ApiRequest::*>(&p.target)) {
    if (value.string() == nullptr) return wrong_value(where, describe_type(p), value);
    if (has_range(p) && value.string()->size() > static_cast<size_t>(p.max)) {
      return invalid(
          where + " has " + std::to_string(value.string()->size()) + " bytes; it must be " + describe_type(p) + ".",
          where);
    }
    request.** text = *value.string();
    return {};
  }
  if (const auto* strings = std::get_if<std::vector<std::string> ApiRequest::*>(&p.target)) {
    ASSIGN_OR_RETURN(request.**strings, read_strings(value, limits, where));
    return {};
  }
  const auto* ids = std::get_if<std::vector<TokenId> ApiRequest::*>(&p.target);
  ASSIGN_OR_RETURN(request.**ids, read_token_ids(value, where));
  if ((request.**ids).size() > static_cast<size_t>(limits.max_stops)) {
    return invalid(where + " has " + std::to_string((request.**ids).size()) + " ids; at most " +
                       std::to_string(limits.max_stops) + " are served.",
                   where);
  }
  return {};
}

std::string parameters_markdown() {
  std::string out;
  for (const auto& [title, endpoint] :
       {std::pair{"Both `/v1/chat/completions` and `/v1/completions`", kBoth},
        std::pair{"`/v1/chat/completions` alone", kChatOnly}, std::pair{"`/v1/completions` alone", kCompletionsOnly}}) {
    out += std::string("### ") + title +
           "\n\n| field | value | default | name from | meaning | sets |\n|---|---|---|---|---|---|\n";
    for (const Parameter& p : parameters()) {
      if (p.endpoints != endpoint) continue;
      const std::string type = p.type == FieldType::kOther ? "see meaning" : describe_type(p);
      const std::string field = *p.field != '\0' ? "`" + std::string(p.field) + "`" : "";
      out += std::string("| `") + p.name + "` | " + type + " | `" + p.default_text + "` | " + p.origin + " | " +
             p.meaning + " | " + field + " |\n";
    }
    out += "\n";
  }
  out +=
      "### Known, without effect\n\nAny value is accepted.\n\n| field | endpoint | why it changes nothing "
      "|\n|---|---|---|\n";
  for (const IgnoredField& field : ignored_fields())
    out += std::string("| `") + field.name + "` | " + name_of(field.endpoints) + " | " + field.why + " |\n";
  out +=
      "\n### Known, not served\n\nA value other than those listed (or null) is a 400 that names the field.\n\n| field "
      "| "
      "endpoint | accepted values | instead |\n|---|---|---|---|\n";
  for (const UnservedField& field : unserved_fields()) {
    out += std::string("| `") + field.name + "` | " + name_of(field.endpoints) + " | `" + field.allowed + "` | " +
           field.instead + " |\n";
  }
  return out;
}

}  // namespace ibid
