// Anthropic's Messages to a chat.
#include <algorithm>
#include <map>

#include "server/dialects/dialects.h"
#include "server/fields/body_parts.h"
#include "server/fields/dialect_table.h"
#include "server/fields/read_fields.h"

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

// The result of a tool. An agent goes on with its other results where one of them is a picture: the model learns that
// there was one.
Result<std::string> read_tool_result(const Json& content, const std::string& where) {
  if (content.array() == nullptr) return read_texts(content, where);
  std::string text;
  for (size_t i = 0; i < content.array()->size(); ++i) {
    const Json& block = (*content.array())[i];
    const std::string place = where + "[" + std::to_string(i) + "]";
    ASSIGN_OR_RETURN(const std::string type, type_of(block, place));
    std::string piece;
    if (type == "image" || type == "document") {
      piece = "[" + type + " left out: the model reads texts alone]";
    } else if (type == "tool_reference") {
      if (text_at(block, "tool_name") == nullptr)
        return invalid(place + ".tool_name must be a text.", place + ".tool_name");
      piece = *text_at(block, "tool_name");
    } else if (type == "search_result") {
      for (const char* name : {"title", "source"}) {
        if (text_at(block, name) != nullptr) piece += *text_at(block, name) + '\n';
      }
      if (const Json* found = given(block, "content")) {
        ASSIGN_OR_RETURN(const std::string texts, read_texts(*found, place + ".content"));
        piece += texts;
      }
    } else {
      ASSIGN_OR_RETURN(piece, read_texts(Json(Json::Array{block}), place));
    }
    if (!text.empty()) text += '\n';
    text += piece;
  }
  return text;
}

// Claude Code begins its system text with a line whose value changes with each request, so that nothing after it would
// ever be found in the prefix cache.
std::string steady(std::string text) {
  if (!text.starts_with("x-anthropic-billing-header:")) return text;
  const size_t line = text.find('\n'), at = text.find("cch=");
  if (at == std::string::npos || at > line) return text;
  const size_t end = text.find_first_of(";\n", at);
  if (end != std::string::npos) text.replace(at + 4, end - at - 4, "0");
  return text;
}

// A picture as OpenAI's chats have it.
Result<Json> picture_part(const Json& block, const std::string& where) {
  const Json* source = given(block, "source");
  const std::string* type = source != nullptr ? text_at(*source, "type") : nullptr;
  if (type == nullptr) return invalid(where + ".source must be an object with a type.", where + ".source");
  if (*type == "url" && text_at(*source, "url") != nullptr) return picture_of_url(*text_at(*source, "url"));
  if (*type != "base64" || text_at(*source, "data") == nullptr)
    return invalid(where + ".source must have the type base64 and the picture as data.", where + ".source");
  const std::string* media = text_at(*source, "media_type");
  return picture_of_url("data:" + (media != nullptr ? *media : "image/png") + ";base64," + *text_at(*source, "data"));
}

class MessageReader {
 public:
  Status read(const Json& message, const std::string& where) {
    const std::string* role = text_at(message, "role");
    if (role == nullptr || (*role != "user" && *role != "assistant" && *role != "system"))
      return invalid(where + ".role must be user, assistant or system.", where + ".role");
    const Json* content = given(message, "content");
    if (content == nullptr) return invalid(where + ".content is missing.", where + ".content");
    const std::string place = where + ".content";
    if (*role == "system") return read_system(*content, place);
    const bool user = *role == "user";
    if (content->string() != nullptr) return out_.push_back(chat_message(role->c_str(), *content)), Status();
    if (content->array() == nullptr) return wrong_value(place, "a text or an array of blocks", *content);
    std::string text, reasoning;
    Json::Array calls, parts;  // parts: texts and pictures in order
    bool has_results = false, has_pictures = false;
    for (size_t i = 0; i < content->array()->size(); ++i) {
      const Json& block = (*content->array())[i];
      const std::string at = place + "[" + std::to_string(i) + "]";
      ASSIGN_OR_RETURN(const std::string type, type_of(block, at));
      if (type == "text") {
        if (text_at(block, "text") == nullptr) return invalid(at + ".text must be a text.", at + ".text");
        if (!text.empty()) text += '\n';
        text += *text_at(block, "text");
        parts.push_back(block);
      } else if (type == "image" && user) {
        ASSIGN_OR_RETURN(Json picture, picture_part(block, at));
        parts.push_back(std::move(picture));
        has_pictures = true;
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
      } else if (treatment_of(Dialect::kMessages, DialectPart::kItem, type) != Treatment::kIgnored) {
        return unserved_type(type, at);
      }
    }
    if (text.empty() && has_results && !has_pictures) return {};
    Json said = has_pictures ? Json(std::move(parts)) : Json(std::move(text));
    const bool is_silent = said.string() != nullptr && said.string()->empty() && !calls.empty();
    Json out = chat_message(role->c_str(), is_silent ? Json() : std::move(said));
    if (!reasoning.empty()) set(out, "reasoning_content", Json(std::move(reasoning)));
    if (!calls.empty()) set(out, "tool_calls", Json(std::move(calls)));
    out_.push_back(std::move(out));
    return {};
  }

  Json::Array take() { return std::move(out_); }
  Json::Array& messages() { return out_; }

  // A tool that the conversation brings, takes away, or lets the model know of, in order.
  struct ToolChange {
    std::string name;
    Json definition;  // null: of one that was declared
    bool is_removed = false;
    std::string where;
  };
  const std::vector<ToolChange>& tool_changes() const { return changes_; }

 private:
  // At its place, anywhere among the others. Claude Code announces in it which tools came or went.
  Status read_system(const Json& content, const std::string& where) {
    if (content.array() == nullptr) {
      ASSIGN_OR_RETURN(std::string text, read_texts(content, where));
      return say_system(std::move(text));
    }
    Json::Array texts;
    for (size_t i = 0; i < content.array()->size(); ++i) {
      const Json& block = (*content.array())[i];
      const std::string at = where + "[" + std::to_string(i) + "]";
      ASSIGN_OR_RETURN(const std::string type, type_of(block, at));
      if (type == "tool_addition" || type == "tool_removal") {
        const Json* tool = given(block, "tool");
        const Json* definition = tool != nullptr ? given(*tool, "definition") : nullptr;
        const std::string* name =
            tool != nullptr ? text_at(definition != nullptr ? *definition : *tool, "name") : nullptr;
        if (name == nullptr) return invalid(at + ".tool must name a tool.", at + ".tool");
        changes_.push_back(
            {*name, definition != nullptr ? *definition : Json(), type == "tool_removal", at + ".tool.definition"});
      } else if (treatment_of(Dialect::kMessages, DialectPart::kItem, type) != Treatment::kIgnored) {
        ASSIGN_OR_RETURN(std::string text, read_texts(Json(Json::Array{block}), where));
        texts.emplace_back(std::move(text));
      }
    }
    std::string text;
    for (const Json& piece : texts) (text += text.empty() ? "" : "\n") += *piece.string();
    return say_system(std::move(text));
  }

  Status say_system(std::string text) {
    if (!text.empty()) out_.push_back(chat_message("system", Json(std::move(text))));
    return {};
  }

  Status read_result(const Json& block, const std::string& at) {
    const std::string* id = text_at(block, "tool_use_id");
    if (id == nullptr) return invalid(at + ".tool_use_id must be a text.", at + ".tool_use_id");
    const Json* content = given(block, "content");
    std::string text;
    if (content != nullptr) {
      ASSIGN_OR_RETURN(text, read_tool_result(*content, at + ".content"));
      for (size_t i = 0; content->array() != nullptr && i < content->array()->size(); ++i) {
        const Json& part = (*content->array())[i];
        if (text_at(part, "tool_name") != nullptr) changes_.push_back({*text_at(part, "tool_name"), {}, false, ""});
      }
    }
    Json out = chat_message("tool", Json(std::move(text)));
    set(out, "tool_call_id", Json(*id));
    out_.push_back(std::move(out));
    return {};
  }

  Json::Array out_;
  std::vector<ToolChange> changes_;
};

// What is declared, with what the conversation added and without what it took away. A tool whose loading is deferred is
// included when the conversation first names it: until then it is for the client's own search. Where a search of the
// server's is declared, which is not served, all are included.
Status read_message_tools(const Json& tools, const Json* choice, const std::vector<MessageReader::ToolChange>& changes,
                          Json& out) {
  if (tools.array() == nullptr) return wrong_value("tools", "an array of tools", tools);
  struct Tool {
    std::string name;
    Json function;
    bool is_declared;
  };
  std::vector<Tool> list;
  std::vector<LeftOutTool> left_out;
  std::map<std::string, size_t, std::less<>> places;
  const auto add = [&](const Json& tool, const std::string& place, bool is_declared) -> Status {
    const std::string *type = text_at(tool, "type"), *name = text_at(tool, "name");
    if (type != nullptr && treatment_of(Dialect::kMessages, DialectPart::kTool, *type) != Treatment::kUsed) {
      left_out.push_back({*type, name != nullptr ? *name : "", place});
      return {};
    }
    if (name == nullptr) return invalid(place + ".name must be a text.", place + ".name");
    const Json* deferred = given(tool, "defer_loading");
    is_declared = is_declared || deferred == nullptr || deferred->boolean() == nullptr || !*deferred->boolean();
    places[*name] = list.size();
    list.push_back({*name,
                    function_tool(*tool.find("name"), given(tool, "description"), given(tool, "input_schema"),
                                  given(tool, "strict")),
                    is_declared});
    return {};
  };
  for (size_t i = 0; i < tools.array()->size(); ++i)
    TRY(add((*tools.array())[i], "tools[" + std::to_string(i) + "]", false));
  for (const MessageReader::ToolChange& change : changes) {
    const auto known = places.find(change.name);
    if (known != places.end()) {
      list[known->second].is_declared = !change.is_removed;
    } else if (!change.is_removed && !change.definition.is_null()) {
      TRY(add(change.definition, change.where, true));
    }
  }
  const bool has_all =
      std::ranges::none_of(list, &Tool::is_declared) ||
      std::ranges::any_of(left_out, [](const LeftOutTool& tool) { return tool.type.starts_with("tool_search_tool_"); });
  Json::Array declared;
  for (Tool& tool : list) {
    if (tool.is_declared || has_all) declared.push_back(std::move(tool.function));
  }
  const std::string* kind = choice != nullptr ? text_at(*choice, "type") : nullptr;
  const std::string* named = choice != nullptr ? text_at(*choice, "name") : nullptr;
  const bool may_do_without = !declared.empty() || (kind != nullptr && *kind == "none");
  TRY(check_left_out(left_out, may_do_without, named != nullptr ? *named : ""));
  set(out, "tools", Json(std::move(declared)));
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
  TRY(check_fields(Dialect::kMessages, body));
  Json out{Json::Object()};
  carry(body, out,
        {{"model", "model"},
         {"stop_sequences", "stop"},
         {"temperature", "temperature"},
         {"top_p", "top_p"},
         {"top_k", "top_k"},
         {"stream", "stream"},
         {"seed", "seed"},
         {"cache_salt", "cache_salt"},
         {"resume", "resume"},
         {"resumable", "resumable"}});
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
  if (reader.messages().empty()) return invalid("messages has nothing that the model could read.", "messages");
  const Json& last = reader.messages().back();
  const bool goes_on = *last.find("role")->string() == "assistant" && last.find("tool_calls") == nullptr;
  set(out, "messages", Json(reader.take()));
  if (goes_on) set(out, "continue_final_message", Json(true));
  const Json no_tools{Json::Array()};
  const Json* tools = given(body, "tools");
  if (tools != nullptr || !reader.tool_changes().empty())
    TRY(read_message_tools(tools != nullptr ? *tools : no_tools, given(body, "tool_choice"), reader.tool_changes(),
                           out));
  if (const Json* choice = given(body, "tool_choice")) TRY(read_message_tool_choice(*choice, out));
  if (const Json* thinking = given(body, "thinking")) TRY(read_thinking(*thinking, out));
  if (const Json* config = given(body, "output_config")) {
    if (const Json* effort = given(*config, "effort")) set(out, "reasoning_effort", *effort);
    if (const Json* format = given(*config, "format")) TRY(read_output_format(*format, "output_config.format", out));
  }
  if (const Json* format = given(body, "output_format")) TRY(read_output_format(*format, "output_format", out));
  DialectBody made;
  made.body = std::move(out);
  return made;
}

}  // namespace ibid
