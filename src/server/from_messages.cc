// Anthropic's Messages to a chat.
#include "server/dialects.h"
#include "server/read_fields.h"

namespace ibid {
namespace {

// A text, or the texts of blocks.
Result<std::string> read_texts(const Json& content, const std::string& where) {
  if (content.string() != nullptr) return *content.string();
  if (content.array() == nullptr) return wrong_value(where, "a text or an array of text blocks", content);
  std::string text;
  for (size_t i = 0; i < content.array()->size(); ++i) {
    const Json& block = (*content.array())[i];
    const std::string place = where + "[" + std::to_string(i) + "]";
    ASSIGN_OR_RETURN(const std::string type, type_of(block, place));
    if (type != "text") return unserved_type(type, place);
    if (text_at(block, "text") == nullptr) return invalid(place + ".text must be a text.", place + ".text");
    if (!text.empty()) text += '\n';
    text += *text_at(block, "text");
  }
  return text;
}

// Claude Code begins its system text with a line whose value changes with each request, so that nothing behind it would
// ever be found in the prefix cache.
std::string steady(std::string text) {
  if (!text.starts_with("x-anthropic-billing-header:")) return text;
  const size_t line = text.find('\n'), at = text.find("cch=");
  if (at == std::string::npos || at > line) return text;
  const size_t end = text.find_first_of(";\n", at);
  if (end != std::string::npos) text.replace(at + 4, end - at - 4, "0");
  return text;
}

class MessageReader {
 public:
  Status read(const Json& message, const std::string& where) {
    const std::string* role = text_at(message, "role");
    if (role == nullptr || (*role != "user" && *role != "assistant"))
      return invalid(where + ".role must be user or assistant.", where + ".role");
    const Json* content = given(message, "content");
    if (content == nullptr) return invalid(where + ".content is missing.", where + ".content");
    const std::string place = where + ".content";
    const bool user = *role == "user";
    if (content->string() != nullptr) return out_.push_back(chat_message(role->c_str(), *content)), Status();
    if (content->array() == nullptr) return wrong_value(place, "a text or an array of blocks", *content);
    std::string text, reasoning;
    Json::Array calls;
    bool has_results = false;
    for (size_t i = 0; i < content->array()->size(); ++i) {
      const Json& block = (*content->array())[i];
      const std::string at = place + "[" + std::to_string(i) + "]";
      ASSIGN_OR_RETURN(const std::string type, type_of(block, at));
      if (type == "text") {
        if (text_at(block, "text") == nullptr) return invalid(at + ".text must be a text.", at + ".text");
        if (!text.empty()) text += '\n';
        text += *text_at(block, "text");
      } else if (type == "tool_result" && user) {
        has_results = true;
        TRY(read_result(block, at));
      } else if (type == "tool_use" && !user) {
        const std::string *id = text_at(block, "id"), *name = text_at(block, "name");
        const Json* input = given(block, "input");
        if (id == nullptr || name == nullptr) return invalid(at + " must have an id and a name.", at);
        calls.push_back(function_call(*id, *name, input != nullptr ? input->text() : "{}"));
      } else if (type == "thinking" && !user) {
        if (text_at(block, "thinking") != nullptr) reasoning += *text_at(block, "thinking");
      } else if (type != "redacted_thinking" || user) {
        return unserved_type(type, at);
      }
    }
    if (text.empty() && has_results) return {};
    Json out = chat_message(role->c_str(), text.empty() && !calls.empty() ? Json() : Json(std::move(text)));
    if (!reasoning.empty()) set(out, "reasoning_content", Json(std::move(reasoning)));
    if (!calls.empty()) set(out, "tool_calls", Json(std::move(calls)));
    out_.push_back(std::move(out));
    return {};
  }

  Json::Array take() { return std::move(out_); }
  Json::Array& messages() { return out_; }

 private:
  Status read_result(const Json& block, const std::string& at) {
    const std::string* id = text_at(block, "tool_use_id");
    if (id == nullptr) return invalid(at + ".tool_use_id must be a text.", at + ".tool_use_id");
    const Json* content = given(block, "content");
    std::string text;
    if (content != nullptr) {
      ASSIGN_OR_RETURN(text, read_texts(*content, at + ".content"));
    }
    Json out = chat_message("tool", Json(std::move(text)));
    set(out, "tool_call_id", Json(*id));
    out_.push_back(std::move(out));
    return {};
  }

  Json::Array out_;
};

Status read_message_tools(const Json& tools, Json& out) {
  if (tools.array() == nullptr) return wrong_value("tools", "an array of tools", tools);
  Json::Array list;
  for (size_t i = 0; i < tools.array()->size(); ++i) {
    const Json& tool = (*tools.array())[i];
    const std::string place = "tools[" + std::to_string(i) + "]";
    const std::string* type = text_at(tool, "type");
    if (type != nullptr && *type != "custom") return unserved_type(*type, place);
    if (text_at(tool, "name") == nullptr) return invalid(place + ".name must be a text.", place + ".name");
    list.push_back(function_tool(*tool.find("name"), given(tool, "description"), given(tool, "input_schema"),
                                 given(tool, "strict")));
  }
  set(out, "tools", Json(std::move(list)));
  return {};
}

Status read_message_tool_choice(const Json& choice, Json& out) {
  const std::string* type = text_at(choice, "type");
  const std::string field = "tool_choice";
  if (type == nullptr || (*type != "auto" && *type != "any" && *type != "tool" && *type != "none"))
    return invalid(field + ".type must be auto, any, tool or none.", field + ".type");
  if (*type == "tool") {
    if (text_at(choice, "name") == nullptr) return invalid(field + ".name must be a text.", field + ".name");
    set(out, field,
        Json(Json::Object{{"type", Json(std::string("function"))},
                          {"function", Json(Json::Object{{"name", *choice.find("name")}})}}));
  } else {
    set(out, field, Json(std::string(*type == "any" ? "required" : *type)));
  }
  const Json* alone = given(choice, "disable_parallel_tool_use");
  if (alone != nullptr && alone->boolean() == nullptr)
    return wrong_value(field + ".disable_parallel_tool_use", "true or false", *alone);
  if (alone != nullptr && *alone->boolean()) set(out, "parallel_tool_calls", Json(false));
  return {};
}

Status read_thinking(const Json& thinking, Json& out) {
  const std::string* type = text_at(thinking, "type");
  if (type == nullptr || (*type != "enabled" && *type != "disabled" && *type != "adaptive"))
    return invalid("thinking.type must be enabled, disabled or adaptive.", "thinking.type");
  const bool thinks = *type != "disabled";
  if (const Json* budget = given(thinking, "budget_tokens"); budget != nullptr && thinks) {
    ASSIGN_OR_RETURN(const int64_t n, read_integer(*budget, 0, INT32_MAX, "thinking.budget_tokens"));
    set(out, "thinking_token_budget", Json(n));
  }
  set(out, "chat_template_kwargs", Json(Json::Object{{"enable_thinking", Json(thinks)}, {"thinking", Json(thinks)}}));
  return {};
}

Status read_output_format(const Json& format, const std::string& where, Json& out) {
  const std::string* type = text_at(format, "type");
  const Json* schema = given(format, "schema");
  if (type == nullptr || *type != "json_schema" || schema == nullptr)
    return invalid(where + " must be {\"type\": \"json_schema\", \"schema\": ...}.", where);
  set(out, "response_format", Json(Json::Object{{"type", Json(std::string("json_schema"))}, {"schema", *schema}}));
  return {};
}

}  // namespace

Result<DialectBody> body_of_messages(const Json& body, bool counts) {
  if (body.object() == nullptr) return invalid(std::string("The body must be a JSON object, not ") + body.kind() + ".");
  Json out{Json::Object()};
  carry(body, out,
        {{"model", "model"},
         {"stop_sequences", "stop"},
         {"temperature", "temperature"},
         {"top_p", "top_p"},
         {"top_k", "top_k"},
         {"stream", "stream"},
         {"seed", "seed"},
         {"cache_salt", "cache_salt"}});
  const Json* most = given(body, "max_tokens");
  if (most == nullptr && !counts)
    return invalid("max_tokens is missing; it must be a whole number from 1.", "max_tokens");
  if (most != nullptr && !counts) {
    TRY(read_integer(*most, 1, INT32_MAX, "max_tokens"));
    set(out, "max_tokens", *most);
  }
  MessageReader reader;
  if (const Json* system = given(body, "system")) {
    ASSIGN_OR_RETURN(std::string text, read_texts(*system, "system"));
    if (!text.empty()) reader.messages().push_back(chat_message("system", Json(steady(std::move(text)))));
  }
  const Json* messages = given(body, "messages");
  if (messages == nullptr || messages->array() == nullptr || messages->array()->empty())
    return invalid("messages must be an array of at least one message.", "messages");
  for (size_t i = 0; i < messages->array()->size(); ++i)
    TRY(reader.read((*messages->array())[i], "messages[" + std::to_string(i) + "]"));
  const Json& last = reader.messages().back();
  const bool goes_on = *last.find("role")->string() == "assistant" && last.find("tool_calls") == nullptr;
  set(out, "messages", Json(reader.take()));
  if (goes_on) set(out, "continue_final_message", Json(true));
  if (const Json* tools = given(body, "tools")) TRY(read_message_tools(*tools, out));
  if (const Json* choice = given(body, "tool_choice")) TRY(read_message_tool_choice(*choice, out));
  if (const Json* thinking = given(body, "thinking")) TRY(read_thinking(*thinking, out));
  if (const Json* config = given(body, "output_config")) {
    if (const Json* effort = given(*config, "effort")) set(out, "reasoning_effort", *effort);
    if (const Json* format = given(*config, "format")) TRY(read_output_format(*format, "output_config.format", out));
  }
  if (const Json* format = given(body, "output_format")) TRY(read_output_format(*format, "output_format", out));
  for (const char* name : {"mcp_servers", "container", "context_management"}) {
    const Json* value = given(body, name);
    if (value != nullptr && !(value->array() != nullptr && value->array()->empty()))
      return unsupported(std::string(name) + " is not served here; leave it out.", name);
  }
  DialectBody made;
  made.body = std::move(out);
  return made;
}

}  // namespace ibid
