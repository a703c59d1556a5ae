// Readers of the fields that restrict the form of an answer. At most one of them may be given.

#include "base/quoted.h"
#include "sample/grammar/lazy.h"
#include "server/fields/read_fields.h"

namespace ibid {
namespace {

using Kind = GrammarRequest::Kind;

// Clients that do not know which of its names a server has send the same under two (guidance).
bool is_same(const GrammarRequest& a, const GrammarRequest& b) {
  return a.kind == b.kind && a.text == b.text && a.choices == b.choices && a.is_strict == b.is_strict;
}

Status ask(ApiRequest& request, GrammarRequest grammar) {
  if (is_same(request.grammar, grammar)) return {};
  if (request.grammar.kind != Kind::kNone) {
    return invalid(grammar.field + " and " + request.grammar.field + " both restrict the answer; expected one of them.",
                   grammar.field);
  }
  request.grammar = std::move(grammar);
  return {};
}

// A schema, or the text of one.
Status ask_schema(ApiRequest& request, const Json& value, bool is_strict, const std::string& field) {
  if (value.object() == nullptr && value.boolean() == nullptr && value.string() == nullptr)
    return wrong_value(field, "a JSON Schema", value);
  std::string text = value.string() != nullptr ? *value.string() : value.text();
  return ask(request, {.kind = Kind::kJsonSchema, .text = std::move(text), .is_strict = is_strict, .field = field});
}

Status ask_text(ApiRequest& request, const Json& value, Kind kind, const std::string& field) {
  if (value.string() == nullptr) return wrong_value(field, "a string", value);
  return ask(request, {.kind = kind, .text = *value.string(), .field = field});
}

Status ask_choice(ApiRequest& request, const Json& value, const std::string& field) {
  GrammarRequest grammar{.kind = Kind::kChoice, .field = field};
  if (value.array() == nullptr || value.array()->empty())
    return wrong_value(field, "a list of at least one string", value);
  for (const Json& choice : *value.array()) {
    if (choice.string() == nullptr) return wrong_value(field, "a list of at least one string", value);
    grammar.choices.push_back(*choice.string());
  }
  return ask(request, std::move(grammar));
}

// What OpenAI's clients put around a schema: {"name", "description", "strict", "schema"}.
Status check_wrapper(const Json& wrapper, const std::string& where) {
  if (wrapper.object() == nullptr) return wrong_value(where, "an object with a schema", wrapper);
  for (const auto& [key, what] : *wrapper.object()) {
    if (key == "name" && what.string() == nullptr) return wrong_value(where + ".name", "a string", what);
    if (what.is_null()) continue;
    if (key == "description" && what.string() == nullptr) return wrong_value(where + ".description", "a string", what);
    if (key == "strict" && what.boolean() == nullptr) return wrong_value(where + ".strict", "true or false", what);
  }
  return {};
}

}  // namespace

Status read_response_format(ApiRequest& request, const Json& value, const ApiLimits&) {
  const std::string field = "response_format";
  const Json* type = value.find("type");
  const std::string* name = type != nullptr ? type->string() : nullptr;
  if (name == nullptr ||
      (*name != "text" && *name != "json_object" && *name != "json_schema" && *name != "structural_tag"))
    return wrong_value(field, "an object whose type is text, json_object, json_schema or structural_tag", value);
  const Json* wrapper = value.find("json_schema");
  if (wrapper != nullptr) TRY(check_wrapper(*wrapper, field + ".json_schema"));
  if (*name == "text") return {};
  if (*name == "structural_tag") return ask(request, {.kind = Kind::kTag, .text = value.text(), .field = field});
  const Json* schema = wrapper != nullptr ? wrapper->find("schema") : value.find("schema");
  if (schema != nullptr && !schema->is_null()) {
    const Json* strict = wrapper != nullptr ? wrapper->find("strict") : nullptr;
    const bool is_strict = strict != nullptr && strict->boolean() != nullptr && *strict->boolean();
    return ask_schema(request, *schema, is_strict,
                      wrapper != nullptr ? field + ".json_schema.schema" : field + ".schema");
  }
  if (*name == "json_schema") return invalid(field + ".json_schema.schema is missing.", field + ".json_schema.schema");
  return ask(request, {.kind = Kind::kJsonObject, .field = field});
}

Status read_json_schema_field(ApiRequest& request, const Json& value, const ApiLimits&) {
  if (value.object() != nullptr && value.object()->empty()) return {};
  return ask_schema(request, value, false, "json_schema");
}

Status read_structured_outputs(ApiRequest& request, const Json& value, const ApiLimits&) {
  const std::string field = "structured_outputs";
  if (value.object() == nullptr) return wrong_value(field, "an object such as {\"regex\": \"[a-z]+\"}", value);
  for (const auto& [key, what] : *value.object()) {
    if (what.is_null()) continue;
    const std::string where = field + "." + shown(key, 64);
    if (key == "json") {
      TRY(ask_schema(request, what, false, where));
    } else if (key == "regex") {
      TRY(ask_text(request, what, Kind::kRegex, where));
    } else if (key == "choice") {
      TRY(ask_choice(request, what, where));
    } else if (key == "grammar") {
      TRY(ask_text(request, what, Kind::kGbnf, where));
    } else if (key == "structural_tag") {
      if (what.object() == nullptr && what.string() == nullptr)
        return wrong_value(where, "a structural tag, or its text", what);
      std::string text = what.string() != nullptr ? *what.string() : what.text();
      TRY(ask(request, {.kind = Kind::kTag, .text = std::move(text), .field = where}));
    } else if (key == "json_object") {
      if (what.boolean() == nullptr) return wrong_value(where, "true or false", what);
      if (!*what.boolean()) continue;
      TRY(ask(request, {.kind = Kind::kJsonObject, .field = where}));
    } else {
      return unsupported(where + " is not served; leave it out.", where);
    }
  }
  return {};
}

Status read_guided_json(ApiRequest& request, const Json& value, const ApiLimits&) {
  return ask_schema(request, value, false, "guided_json");
}
Status read_guided_regex(ApiRequest& request, const Json& value, const ApiLimits&) {
  return ask_text(request, value, Kind::kRegex, "guided_regex");
}
Status read_guided_choice(ApiRequest& request, const Json& value, const ApiLimits&) {
  return ask_choice(request, value, "guided_choice");
}
Status read_guided_grammar(ApiRequest& request, const Json& value, const ApiLimits&) {
  return ask_text(request, value, Kind::kGbnf, "guided_grammar");
}

Status read_regex(ApiRequest& request, const Json& value, const ApiLimits&) {
  return ask_text(request, value, Kind::kRegex, "regex");
}
Status read_ebnf(ApiRequest& request, const Json& value, const ApiLimits&) {
  return ask_text(request, value, Kind::kGbnf, "ebnf");
}

Status read_grammar_triggers(ApiRequest& request, const Json& value, const ApiLimits&) {
  constexpr size_t kMaxTriggers = 64;
  enum Type : int64_t { kToken, kWord, kPattern, kFullPattern };
  const Json::Array* list = value.array();
  if (list == nullptr || list->size() > kMaxTriggers)
    return wrong_value("grammar_triggers", "an array of at most 64 triggers", value);
  for (size_t i = 0; i < list->size(); ++i) {
    const std::string where = "grammar_triggers[" + std::to_string(i) + "]";
    const Json& given = (*list)[i];
    const Json* type = given.object() == nullptr ? nullptr : given.find("type");
    const Json* text = given.object() == nullptr ? nullptr : given.find("value");
    if (type == nullptr) return wrong_value(where, "an object with type and value", given);
    ASSIGN_OR_RETURN(const int64_t kind, read_integer(*type, kToken, kFullPattern, where + ".type"));
    if (text == nullptr || text->string() == nullptr) return invalid(where + ".value must be a text.", where);
    GrammarTrigger trigger;
    if (kind == kToken && given.find("token") != nullptr) {
      ASSIGN_OR_RETURN(const int64_t token, read_integer(*given.find("token"), 0, INT32_MAX, where + ".token"));
      trigger.token = TokenId{static_cast<int32_t>(token)};
      request.triggers.push_back(std::move(trigger));
      continue;
    }
    trigger.text = *text->string();
    if (kind == kPattern) trigger.kind = grammar::Trigger::Kind::kPattern;
    if (kind == kFullPattern) trigger.kind = grammar::Trigger::Kind::kWhole;
    if (trigger.text.empty() || trigger.text.size() > grammar::kMaxTriggerBytes)
      return invalid("grammar_triggers: a trigger has 1 to " + std::to_string(grammar::kMaxTriggerBytes) + " bytes.",
                     "grammar_triggers");
    request.triggers.push_back(std::move(trigger));
  }
  return {};
}

}  // namespace ibid
