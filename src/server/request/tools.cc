#include "server/request/tools.h"
#include "server/fields/body_parts.h"

#include <algorithm>
#include <set>
#include <utility>

#include "base/quoted.h"
#include "server/fields/dialect_table.h"
#include "server/fields/read_fields.h"
#include "text/output/schema_check.h"

namespace ibid {
namespace {

constexpr size_t kMaxTools = 512;

bool is_tool_name(std::string_view name, size_t most) {
  return !name.empty() && name.size() <= most && std::ranges::all_of(name, [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '-' ||
           c == '.';
  });
}

Status check_tool(const Json& tool, const std::string& where, size_t max_name, std::set<std::string>& names) {
  const Json* type = tool.find("type");
  if (tool.object() == nullptr || type == nullptr || type->string() == nullptr)
    return wrong_value(where, "an object such as {\"type\": \"function\", \"function\": {...}}", tool);
  if (*type->string() != "function") {
    return unsupported(where + ".type is " + in_quotes(*type->string(), 32) + "; only functions are served.",
                       where + ".type");
  }
  const Json* function = tool.find("function");
  if (function == nullptr || function->object() == nullptr)
    return invalid(where + ".function must be an object with a name.", where + ".function");
  const Json* name = function->find("name");
  if (name == nullptr || name->string() == nullptr || !is_tool_name(*name->string(), max_name)) {
    return invalid(where + ".function.name must be a name of 1 to " + std::to_string(max_name) +
                       " letters, digits, '_', '-' or '.'.",
                   where + ".function.name");
  }
  if (!names.insert(*name->string()).second)
    return invalid(where + ".function.name is a name that another tool has.", where + ".function.name");
  for (const char* text : {"description"}) {
    const Json* value = function->find(text);
    if (value != nullptr && !value->is_null() && value->string() == nullptr)
      return wrong_value(where + ".function." + text, "a text", *value);
  }
  const Json* parameters = function->find("parameters");
  if (parameters != nullptr && !parameters->is_null() && parameters->object() == nullptr)
    return wrong_value(where + ".function.parameters", "a JSON Schema of an object", *parameters);
  const bool has_schema = parameters != nullptr && parameters->object() != nullptr;
  if (has_schema && !SchemaCheck(*parameters, SchemaCheck::How::kKind).accepts(*parameters, Json(Json::Object()))) {
    return invalid(where + ".function.parameters of " + in_quotes(*name->string(), max_name) +
                       " allow no object; the arguments of a call are one.",
                   where + ".function.parameters");
  }
  const Json* strict = function->find("strict");
  if (strict != nullptr && !strict->is_null() && strict->boolean() == nullptr)
    return wrong_value(where + ".function.strict", "true or false", *strict);
  return {};
}

// {"type": "function", "function": {"name": N}}.
Result<std::string> read_function_choice(const Json& value, const std::string& where) {
  const Json* function = value.find("function");
  const Json* name = function != nullptr ? function->find("name") : nullptr;
  if (name == nullptr || name->string() == nullptr)
    return invalid(where + ".function.name is missing; it must name a tool.", where + ".function.name");
  return *name->string();
}

// A call's arguments as JSON; an object also where a client gives none.
std::string arguments_text(const Json* arguments) {
  const bool is_nothing =
      arguments == nullptr || arguments->is_null() || (arguments->array() != nullptr && arguments->array()->empty());
  if (is_nothing) return "{}";
  if (arguments->string() == nullptr) return arguments->text();
  const std::string& text = *arguments->string();
  const size_t begin = text.find_first_not_of(" \t\r\n");
  if (begin == std::string::npos) return "{}";
  const std::string_view said = std::string_view(text).substr(begin, text.find_last_not_of(" \t\r\n") + 1 - begin);
  return said == "[]" ? "{}" : text;
}

Json text_message(const char* role, std::string content) {
  return Json(Json::Object{{"role", Json(std::string(role))}, {"content", Json(std::move(content))}});
}

std::string text_content(const Json& message) {
  const Json* content = message.find("content");
  return content != nullptr && content->string() != nullptr ? *content->string() : "";
}

}  // namespace

Status read_tools(ApiRequest& request, const Json& value, const ApiLimits& limits) {
  if (value.array() == nullptr) return wrong_value("tools", "an array of tools", value);
  if (value.array()->empty()) return {};
  if (value.array()->size() > kMaxTools) {
    return invalid("tools has " + std::to_string(value.array()->size()) + " tools; at most " +
                       std::to_string(kMaxTools) + " are served.",
                   "tools");
  }
  std::set<std::string> names;
  Json::Array list;
  std::vector<LeftOutTool> left_out;
  for (size_t i = 0; i < value.array()->size(); ++i) {
    const Json& tool = (*value.array())[i];
    const std::string where = "tools[" + std::to_string(i) + "]";
    const std::string* type = tool.object() != nullptr ? text_at(tool, "type") : nullptr;
    if (type != nullptr && treatment_of(Dialect::kChat, DialectPart::kTool, *type) == Treatment::kIgnored) {
      left_out.push_back({*type, "", where});
      continue;
    }
    TRY(check_tool(tool, where, limits.max_tool_name, names));
    list.push_back(tool);
  }
  TRY(check_left_out(left_out, !list.empty(), ""));
  request.chat.tools = Json(std::move(list));
  return {};
}

Status read_tool_choice(ApiRequest& request, const Json& value, const ApiLimits&) {
  const std::string field = "tool_choice";
  const auto mode_of = [](std::string_view word) -> std::optional<ToolChoice> {
    if (word == "none") return ToolChoice::kNone;
    if (word == "auto") return ToolChoice::kAuto;
    if (word == "required") return ToolChoice::kRequired;
    return std::nullopt;
  };
  constexpr const char* kWanted = "\"none\", \"auto\", \"required\", or an object that names functions";
  if (value.string() != nullptr) {
    const std::optional<ToolChoice> mode = mode_of(*value.string());
    if (!mode) return wrong_value(field, kWanted, value);
    request.tool_choice = *mode;
    return {};
  }
  const Json* type = value.find("type");
  const std::string* word = type != nullptr ? type->string() : nullptr;
  if (word != nullptr && *word == "function") {
    ASSIGN_OR_RETURN(std::string name, read_function_choice(value, field));
    request.tool_choice = ToolChoice::kRequired;
    request.allowed_tools = {std::move(name)};
    return {};
  }
  if (word == nullptr || *word != "allowed_tools") return wrong_value(field, kWanted, value);
  const Json* allowed = value.find("allowed_tools");
  const Json* mode = allowed != nullptr ? allowed->find("mode") : nullptr;
  const Json* tools = allowed != nullptr ? allowed->find("tools") : nullptr;
  const std::optional<ToolChoice> known =
      mode != nullptr && mode->string() != nullptr ? mode_of(*mode->string()) : std::nullopt;
  if (!known || tools == nullptr || tools->array() == nullptr || tools->array()->empty())
    return wrong_value(field + ".allowed_tools", "an object with mode and tools",
                       allowed != nullptr ? *allowed : value);
  if (tools->array()->size() > kMaxTools)
    return invalid(field + ".allowed_tools.tools has more than " + std::to_string(kMaxTools) + " names.", field);
  request.tool_choice = *known;
  for (const Json& tool : *tools->array()) {
    ASSIGN_OR_RETURN(std::string name, read_function_choice(tool, field + ".allowed_tools.tools"));
    request.allowed_tools.push_back(std::move(name));
  }
  return {};
}

// Checks the fields in combination.
Status check_tools(ApiRequest& request) {
  const Json::Array* tools = request.chat.tools.array();
  if (tools == nullptr) {
    if (request.tool_choice == ToolChoice::kRequired || !request.allowed_tools.empty())
      return invalid("tool_choice needs tools to choose from.", "tool_choice");
    return {};
  }
  std::set<std::string_view> names;  // finding one walks through all that a client wrote before it
  if (!request.allowed_tools.empty()) {
    for (const Json& tool : *tools) names.insert(tool_name(tool));
  }
  for (const std::string& name : request.allowed_tools) {
    if (!names.contains(name))
      return invalid("tool_choice names " + in_quotes(name, 64) + ", which is none of the tools.", "tool_choice");
  }
  using Kind = GrammarRequest::Kind;
  const bool is_format = request.grammar.kind == Kind::kJsonObject || request.grammar.kind == Kind::kJsonSchema;
  // A format is one for texts, and clients send it beside a call that they want (OpenAI takes both).
  if (request.tool_choice == ToolChoice::kRequired && is_format && request.gbnf.empty()) request.grammar = {};
  if (request.tool_choice == ToolChoice::kRequired &&
      (request.grammar.kind != GrammarRequest::Kind::kNone || !request.gbnf.empty())) {
    return invalid("tool_choice requires a call, and another field restricts the answer; expected one of them.",
                   "tool_choice");
  }
  return {};
}

const std::string& tool_name(const Json& tool) { return *tool.find("function")->find("name")->string(); }

bool is_strict_tool(const Json& tool) {
  const Json* strict = tool.find("function")->find("strict");
  return strict != nullptr && strict->boolean() != nullptr && *strict->boolean();
}

namespace {

const Json* list_at(const Json& schema, const char* key) {
  const Json* value = schema.find(key);
  return value != nullptr && value->array() != nullptr ? value : nullptr;
}

// Whether an object is described by `properties` and `required` alone, so that closing it excludes no values but those
// with names that were not declared.
bool may_be_closed(const Json& schema) {
  static const std::set<std::string_view> kPlain = {"type",    "properties", "required", "title",       "description",
                                                    "$schema", "$id",        "$defs",    "definitions", "default",
                                                    "example", "examples",   "strict",   "$comment",    "deprecated"};
  return std::ranges::all_of(*schema.object(), [](const Json::Member& member) {
    return kPlain.contains(member.first) || member.first.starts_with("x-");
  });
}

}  // namespace

Json tool_schema(const Json& tool) {
  const Json* parameters = tool.find("function")->find("parameters");
  Json schema(Json::Object{});
  if (parameters != nullptr && parameters->object() != nullptr) schema = *parameters;
  Json::Object& members = *schema.object();
  const auto member = [&](std::string_view key) { return std::ranges::find(members, key, &Json::Member::first); };
  // Whatever else it may be, the arguments of a call are an object.
  const Json object(std::string("object"));
  member("type") == members.end() ? static_cast<void>(members.emplace_back("type", object))
                                  : static_cast<void>(member("type")->second = object);
  // A function takes what it names: a model that may make up more does not end.
  if (!may_be_closed(schema)) return schema;
  if (member("properties") == members.end()) members.emplace_back("properties", Json(Json::Object()));
  if (Json::Object* properties = member("properties")->second.object(); properties != nullptr) {
    if (const Json* required = list_at(schema, "required"); required != nullptr) {
      for (const Json& name : *required->array()) {
        if (name.string() == nullptr ||
            std::ranges::find(*properties, *name.string(), &Json::Member::first) != properties->end())
          continue;
        properties->emplace_back(*name.string(), Json(true));  // what is required is one of its names
      }
    }
  }
  members.emplace_back("additionalProperties", Json(false));
  return schema;
}

bool may_be_called(const ApiRequest& api, const std::string& name) {
  return api.allowed_tools.empty() || std::ranges::find(api.allowed_tools, name) != api.allowed_tools.end();
}

std::shared_ptr<const std::vector<DeclaredTool>> declared_tools(const ApiRequest& api) {
  if (api.chat.tools.array() == nullptr || api.tool_choice == ToolChoice::kNone) return nullptr;
  auto tools = std::make_shared<std::vector<DeclaredTool>>();
  for (const Json& tool : *api.chat.tools.array()) {
    if (!may_be_called(api, tool_name(tool))) continue;
    const Json* parameters = tool.find("function")->find("parameters");
    const bool has_schema = parameters != nullptr && parameters->object() != nullptr;
    tools->push_back({tool_name(tool), has_schema ? std::make_shared<const Json>(*parameters) : nullptr});
  }
  return tools;
}

namespace {

constexpr size_t kMaxIndent = 16;

void write_indented(const Json& value, size_t depth, std::string& out) {
  const std::string line = "\n" + std::string(4 * (depth + 1), ' '), last = "\n" + std::string(4 * depth, ' ');
  bool is_first = true;
  const auto next = [&] {
    if (!std::exchange(is_first, false)) out += ',';
    out += line;
  };
  if (depth >= kMaxIndent) {  // what a few bytes become has a bound
    out += value.text();
  } else if (const Json::Array* items = value.array(); items != nullptr && !items->empty()) {
    out += '[';
    for (const Json& item : *items) next(), write_indented(item, depth + 1, out);
    out += last + ']';
  } else if (const Json::Object* members = value.object(); members != nullptr && !members->empty()) {
    out += '{';
    for (const auto& [name, member] : *members) {
      next();
      out += Json(name).text() + ": ";
      write_indented(member, depth + 1, out);
    }
    out += last + '}';
  } else {
    out += value.text();
  }
}

}  // namespace

std::string functions_as_text(const Json& tools) {
  std::string out;
  if (tools.array() == nullptr || tools.array()->empty()) return out;
  Json::Array functions;
  for (const Json& tool : *tools.array()) functions.push_back(*tool.find("function"));
  write_indented(Json(std::move(functions)), 0, out);
  return out;
}

Json with_generic_tools(const Json& messages, const Json& tools) {
  const bool has_tools = tools.array() != nullptr;
  std::string list = "You may call functions. Each line describes one of them, as JSON:\n";
  for (const Json& tool : has_tools ? *tools.array() : Json::Array()) list += tool.find("function")->text() + "\n";
  list +=
      "To call a function, write its name and its arguments as JSON between these two tags and nothing after them:\n"
      "<tool_call>\n{\"name\": \"NAME\", \"arguments\": {}}\n</tool_call>";
  Json::Array out;
  const Json::Array& given = *messages.array();
  size_t i = 0;
  const std::string* role = given.empty() ? nullptr : given[0].find("role")->string();
  if (!has_tools) {
    // Tools are not described; the calls of the history are still written.
  } else if (role != nullptr && (*role == "system" || *role == "developer")) {
    out.push_back(text_message("system", text_content(given[0]) + "\n\n" + list));
    ++i;
  } else {
    out.push_back(text_message("system", list));
  }
  for (; i < given.size(); ++i) {
    const Json* calls = given[i].find("tool_calls");
    const std::string& role_of = *given[i].find("role")->string();
    if (role_of == "tool") {
      std::string text;  // of all that follow each other, which may be thousands
      while (true) {
        text += "<tool_response>\n" + text_content(given[i]) + "\n</tool_response>";
        if (i + 1 == given.size() || *given[i + 1].find("role")->string() != "tool") break;
        text += '\n', ++i;
      }
      out.push_back(text_message("user", std::move(text)));
    } else if (calls != nullptr && calls->array() != nullptr && !calls->array()->empty()) {
      std::string text = text_content(given[i]);
      for (const Json& call : *calls->array()) {
        const Json* function = call.find("function");
        const Json* name = function != nullptr ? function->find("name") : nullptr;
        const Json* arguments = function != nullptr ? function->find("arguments") : nullptr;
        if (name == nullptr || name->string() == nullptr) continue;
        const std::string json = arguments_text(arguments);
        text += (text.empty() ? "" : "\n") +
                ("<tool_call>\n{\"name\": " + name->text() + ", \"arguments\": " + json + "}\n</tool_call>");
      }
      out.push_back(text_message("assistant", std::move(text)));
    } else {
      out.push_back(given[i]);
    }
  }
  return Json(std::move(out));
}

}  // namespace ibid
