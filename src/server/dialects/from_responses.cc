// OpenAI's Responses to a chat.
#include <algorithm>

#include "base/quoted.h"
#include "server/dialects/dialects.h"
#include "server/fields/body_parts.h"
#include "server/fields/dialect_table.h"
#include "server/fields/read_fields.h"

namespace ibid {
namespace {

// A text, or the texts of parts. `of_tool`: a tool's result; a picture in it is left out, and the model learns of it.
Result<std::string> read_parts(const Json& content, const std::string& where, bool of_tool = false) {
  if (content.string() != nullptr) return *content.string();
  if (content.array() == nullptr) return wrong_value(where, "a text or an array of parts", content);
  std::string text;
  for (size_t i = 0; i < content.array()->size(); ++i) {
    const Json& part = (*content.array())[i];
    const std::string place = where + "[" + std::to_string(i) + "]";
    ASSIGN_OR_RETURN(const std::string type, type_of(part, place));
    const bool refusal = type == "refusal";
    if (of_tool && (type == "input_image" || type == "input_file")) {
      if (i > 0) text += '\n';
      text += "[" + type.substr(std::string_view("input_").size()) + " left out: the model reads texts alone]";
      continue;
    }
    if (!refusal && type != "input_text" && type != "output_text" && type != "text" && type != "reasoning_text" &&
        type != "summary_text")
      return unserved_type(type, place);
    const std::string* piece = text_at(part, refusal ? "refusal" : "text");
    if (piece == nullptr) return invalid(place + ".text must be a text.", place + ".text");
    if (i > 0) text += '\n';
    text += *piece;
  }
  return text;
}

bool shows_pictures(const Json& content) {
  const auto is_picture = [](const Json& part) {
    const std::string* type = text_at(part, "type");
    return type != nullptr && *type == "input_image";
  };
  return content.array() != nullptr && std::ranges::any_of(*content.array(), is_picture);
}

// Texts and pictures, as OpenAI's chats have them.
Result<Json> read_shown(const Json& content, const std::string& where) {
  Json::Array out;
  for (size_t i = 0; i < content.array()->size(); ++i) {
    const Json& part = (*content.array())[i];
    const std::string place = where + "[" + std::to_string(i) + "]";
    const std::string* type = text_at(part, "type");
    if (type == nullptr || *type != "input_image") {
      ASSIGN_OR_RETURN(std::string text, read_parts(Json(Json::Array{part}), where));
      out.push_back(Json(Json::Object{{"type", Json(std::string("text"))}, {"text", Json(std::move(text))}}));
      continue;
    }
    if (text_at(part, "image_url") == nullptr)
      return invalid(place + ".image_url must be a text: a data URL of a picture.", place + ".image_url");
    out.push_back(picture_of_url(*text_at(part, "image_url")));
  }
  return Json(std::move(out));
}

// Items to messages: a model's reasoning, text and calls in a row are one message.
class ItemReader {
 public:
  explicit ItemReader(Json::Array& messages) : messages_(messages) {}

  Status read(const Json& item, const std::string& where) {
    if (item.object() == nullptr) return wrong_value(where, "an object", item);
    const std::string* type = text_at(item, "type");
    if (type == nullptr || *type == "message") return read_message(item, where);
    if (*type == "function_call") return read_call(item, where);
    if (*type == "custom_tool_call") return read_custom_call(item, where);
    if (*type == "local_shell_call") return read_shell_call(item, where);
    if (*type == "function_call_output" || *type == "custom_tool_call_output" || *type == "local_shell_call_output") {
      const std::string* id = text_at(item, "call_id");
      const Json* output = given(item, "output");
      if (id == nullptr || output == nullptr) return invalid(where + " must have call_id and output.", where);
      ASSIGN_OR_RETURN(std::string text, read_parts(*output, where + ".output", true));
      Json message = chat_message("tool", Json(std::move(text)));
      set(message, "tool_call_id", Json(*id));
      messages_.push_back(std::move(message));
      return {};
    }
    if (*type == "reasoning") {
      const Json* content = given(item, "content");
      if (content == nullptr) return {};
      ASSIGN_OR_RETURN(std::string text, read_parts(*content, where + ".content"));
      set(answer(true), "reasoning_content", Json(std::move(text)));
      return {};
    }
    if (treatment_of(Dialect::kResponses, DialectPart::kItem, *type) == Treatment::kIgnored) return {};
    return unserved_type(*type, where);
  }

 private:
  Status read_message(const Json& item, const std::string& where) {
    const std::string* role = text_at(item, "role");
    const Json* content = given(item, "content");
    if (role == nullptr || (*role != "user" && *role != "system" && *role != "developer" && *role != "assistant"))
      return invalid(where + ".role must be user, system, developer or assistant.", where + ".role");
    if (content == nullptr) return invalid(where + ".content is missing.", where + ".content");
    if (*role == "user" && shows_pictures(*content)) {
      ASSIGN_OR_RETURN(Json parts, read_shown(*content, where + ".content"));
      messages_.push_back(chat_message("user", std::move(parts)));
      return {};
    }
    ASSIGN_OR_RETURN(std::string text, read_parts(*content, where + ".content"));
    if (*role == "assistant") {
      Json& message = answer(false);
      for (auto& [name, value] : *message.object())
        if (name == "content") value = Json(std::move(text));
      return {};
    }
    messages_.push_back(chat_message(role->c_str(), Json(std::move(text))));
    return {};
  }

  Status read_call(const Json& item, const std::string& where) {
    const std::string *id = text_at(item, "call_id"), *name = text_at(item, "name");
    const std::string* arguments = text_at(item, "arguments");
    if (id == nullptr || name == nullptr || arguments == nullptr)
      return invalid(where + " must have call_id, name and arguments.", where);
    return add_call(function_call(*id, flat_name(item, *name), *arguments));
  }

  Status read_custom_call(const Json& item, const std::string& where) {
    const std::string *id = text_at(item, "call_id"), *name = text_at(item, "name");
    const std::string* input = text_at(item, "input");
    if (id == nullptr || name == nullptr || input == nullptr)
      return invalid(where + " must have call_id, name and input.", where);
    return add_call(
        function_call(*id, flat_name(item, *name), Json(Json::Object{{kCustomInput, Json(*input)}}).text()));
  }

  Status read_shell_call(const Json& item, const std::string& where) {
    const std::string* id = text_at(item, "call_id");
    const Json* action = given(item, "action");
    if (id == nullptr || action == nullptr || action->object() == nullptr)
      return invalid(where + " must have call_id and action.", where);
    return add_call(function_call(*id, "local_shell", action->text()));
  }

  Status add_call(Json call) {
    Json& message = answer(false, true);
    if (message.find("tool_calls") == nullptr) set(message, "tool_calls", Json(Json::Array()));
    for (auto& [key, value] : *message.object())
      if (key == "tool_calls") value.array()->push_back(std::move(call));
    return {};
  }

  static std::string flat_name(const Json& call, const std::string& name) {
    const std::string* space = text_at(call, "namespace");
    return space != nullptr && !space->empty() ? in_namespace(*space, name) : name;
  }

  // The assistant's message that the item belongs to.
  Json& answer(bool begins, bool is_call = false) {
    const bool goes_on = !messages_.empty() && *messages_.back().find("role")->string() == "assistant";
    const bool has_text =
        goes_on && (!messages_.back().find("content")->is_null() || messages_.back().find("tool_calls") != nullptr);
    if (!goes_on || begins || (has_text && !is_call)) messages_.push_back(chat_message("assistant", Json()));
    return messages_.back();
  }

  Json::Array& messages_;
};

// Declarations of tools as functions, and the forms in which calls of them are written.
class ToolReader {
 public:
  Status read(const Json& tools, const std::string& where, const std::string& space) {
    if (tools.array() == nullptr) return wrong_value(where, "an array of tools", tools);
    for (size_t i = 0; i < tools.array()->size(); ++i) {
      const Json& tool = (*tools.array())[i];
      const std::string place = where + "[" + std::to_string(i) + "]";
      ASSIGN_OR_RETURN(const std::string type, type_of(tool, place));
      const std::string* name = text_at(tool, "name");
      const bool is_nested = type == "namespace" && !space.empty();
      if (treatment_of(Dialect::kResponses, DialectPart::kTool, type) != Treatment::kUsed || is_nested) {
        left_out.push_back({type, name != nullptr ? *name : "", place});
        continue;
      }
      if (name == nullptr || name->empty()) return invalid(place + ".name must be a text.", place + ".name");
      if (type == "namespace") {
        const Json* within = given(tool, "tools");
        if (within == nullptr) return invalid(place + ".tools must be an array of tools.", place + ".tools");
        TRY(read(*within, place + ".tools", *name));
        continue;
      }
      const std::string flat = space.empty() ? *name : in_namespace(space, *name);
      const bool is_custom = type == "custom";
      if (is_custom || !space.empty()) forms.push_back({flat, *name, space, is_custom});
      if (!is_custom) {
        list.push_back(
            function_tool(Json(flat), given(tool, "description"), given(tool, "parameters"), given(tool, "strict")));
        continue;
      }
      const Json description(custom_description(tool));
      list.push_back(function_tool(Json(flat), &description, &custom_schema(), nullptr));
    }
    return {};
  }

  Json::Array list;
  std::vector<CallForm> forms;
  std::vector<LeftOutTool> left_out;

 private:
  // The grammar of its text is for the model to keep to.
  static std::string custom_description(const Json& tool) {
    std::string out;
    if (const std::string* description = text_at(tool, "description")) out = *description;
    const Json* format = given(tool, "format");
    const std::string* definition = format != nullptr ? text_at(*format, "definition") : nullptr;
    if (definition == nullptr) return out;
    const std::string* syntax = text_at(*format, "syntax");
    if (!out.empty()) out += "\n\n";
    out += "The text of `" + std::string(kCustomInput) + "` is of this grammar";
    if (syntax != nullptr) out += " (" + *syntax + ")";
    return out + ":\n" + *definition;
  }
  static const Json& custom_schema() {
    static const Json schema = *parse_json(R"({"type":"object","properties":{")" + std::string(kCustomInput) +
                                           R"(":{"type":"string"}},"required":[")" + kCustomInput + R"("]})");
    return schema;
  }
};

Result<Json> named_function(const Json& choice, const std::string& where) {
  const std::string *name = text_at(choice, "name"), *space = text_at(choice, "namespace");
  if (name == nullptr) return invalid(where + ".name must be a text.", where + ".name");
  const Json flat(space != nullptr && !space->empty() ? in_namespace(*space, *name) : *name);
  return Json(Json::Object{{"type", Json(std::string("function"))}, {"function", Json(Json::Object{{"name", flat}})}});
}

Status read_response_choice(const Json& choice, Json& out) {
  const std::string* type = text_at(choice, "type");
  if (type == nullptr) return set(out, "tool_choice", choice), Status();  // a word
  if (*type == "function" || *type == "custom") {
    ASSIGN_OR_RETURN(Json named, named_function(choice, "tool_choice"));
    return set(out, "tool_choice", std::move(named)), Status();
  }
  if (*type != "allowed_tools") return unserved_type(*type, "tool_choice");
  const Json *mode = given(choice, "mode"), *tools = given(choice, "tools");
  Json::Array list;
  for (size_t i = 0; tools != nullptr && tools->array() != nullptr && i < tools->array()->size(); ++i) {
    const std::string* kind = text_at((*tools->array())[i], "type");
    const bool is_last = i + 1 == tools->array()->size();
    if (kind != nullptr && treatment_of(Dialect::kResponses, DialectPart::kTool, *kind) == Treatment::kIgnored) {
      if (is_last && list.empty()) return unserved_type(*kind, "tool_choice.tools[" + std::to_string(i) + "]");
      continue;
    }
    ASSIGN_OR_RETURN(Json named, named_function((*tools->array())[i], "tool_choice.tools"));
    list.push_back(std::move(named));
  }
  set(out, "tool_choice",
      Json(Json::Object{{"type", Json(std::string("allowed_tools"))},
                        {"allowed_tools", Json(Json::Object{{"mode", mode != nullptr ? *mode : Json()},
                                                            {"tools", Json(std::move(list))}})}}));
  return {};
}

Status read_text_format(const Json& text, Json& out) {
  const Json* format = given(text, "format");
  if (format == nullptr) return {};
  const std::string* type = text_at(*format, "type");
  if (type == nullptr || (*type != "text" && *type != "json_object" && *type != "json_schema"))
    return invalid("text.format.type must be text, json_object or json_schema.", "text.format.type");
  Json wanted(Json::Object{{"type", Json(*type)}});
  if (*type == "json_schema") {
    Json wrapper{Json::Object()};
    carry(*format, wrapper,
          {{"name", "name"}, {"schema", "schema"}, {"strict", "strict"}, {"description", "description"}});
    set(wanted, "json_schema", std::move(wrapper));
  }
  set(out, "response_format", std::move(wanted));
  return {};
}

// The object with these members too, as null, where it lacks them: Open Responses requires them all.
Json completed(Json object, std::initializer_list<const char*> names) {
  if (object.object() == nullptr) return object;
  for (const char* name : names) {
    if (object.find(name) == nullptr) set(object, name, Json());
  }
  return object;
}

Json echo_of_tools(const Json& tools) {
  Json::Array out;
  for (const Json& tool : *tools.array()) out.push_back(completed(tool, {"description", "parameters", "strict"}));
  return Json(std::move(out));
}

Json echo_of_text(const Json& text) {
  Json format(Json::Object{});
  if (const Json* asked = given(text, "format")) format = *asked;
  const std::string* type = text_at(format, "type");
  if (type == nullptr) set(format, "type", Json(std::string("text")));
  if (type != nullptr && *type == "json_schema") {
    format = completed(std::move(format), {"description"});
    if (format.find("strict") == nullptr) set(format, "strict", Json(false));
  }
  Json out(Json::Object{});
  set(out, "format", std::move(format));
  carry(text, out, {{"verbosity", "verbosity"}});
  return out;
}

// What a response repeats of its request; null or the default where it is not set.
Json echo_of(const Json& body) {
  Json out{Json::Object()};
  const auto add = [&](const char* name, const char* otherwise) {
    const Json* value = given(body, name);
    set(out, name, value != nullptr ? *value : *parse_json(otherwise));
  };
  for (const char* name : {"previous_response_id", "instructions", "max_output_tokens", "max_tool_calls", "user",
                           "safety_identifier", "prompt_cache_key"})
    add(name, "null");
  const Json* reasoning = given(body, "reasoning");
  set(out, "reasoning", reasoning != nullptr ? completed(*reasoning, {"effort", "summary"}) : Json());
  const Json* tools = given(body, "tools");
  set(out, "tools", tools != nullptr && tools->array() != nullptr ? echo_of_tools(*tools) : Json(Json::Array()));
  add("tool_choice", "\"auto\"");
  add("truncation", "\"disabled\"");
  add("parallel_tool_calls", "true");
  const Json* text = given(body, "text");
  set(out, "text", echo_of_text(text != nullptr && text->object() != nullptr ? *text : Json(Json::Object())));
  add("top_p", "1.0");
  add("temperature", "1.0");
  add("presence_penalty", "0");
  add("frequency_penalty", "0");
  add("top_logprobs", "0");
  add("store", "true");
  add("service_tier", "\"default\"");
  add("metadata", "{}");
  set(out, "background", Json(false));
  return out;
}

// Whether `include` asks for log-probabilities.
Result<bool> includes_logprobs(const Json& body) {
  bool is_asked = false;
  const Json* include = given(body, "include");
  for (size_t i = 0; include != nullptr && include->array() != nullptr && i < include->array()->size(); ++i) {
    const std::string* what = (*include->array())[i].string();
    if (what == nullptr) continue;
    is_asked = is_asked || *what == "message.output_text.logprobs";
    if (*what != "reasoning.encrypted_content" && *what != "message.output_text.logprobs")
      return unsupported("include has " + in_quotes(*what, 64) + ", which is not served.", "include");
  }
  return is_asked;
}

Status read_response_logprobs(const Json& body, bool is_included, Json& own) {
  const Json* top = given(body, "top_logprobs");
  if (!is_included && (top == nullptr || (top->is_number() && top->number() == 0))) return {};
  set(own, "logprobs", Json(true));
  set(own, "top_logprobs", top != nullptr ? *top : Json(int64_t{0}));
  const Json* tools = given(body, "tools");
  if (tools != nullptr && tools->array() != nullptr && !tools->array()->empty())
    return unsupported(
        "Log-probabilities are reported for texts here, not for calls; leave out tools, or ask "
        "/v1/chat/completions.",
        top != nullptr ? "top_logprobs" : "include");
  return {};
}

// The stored conversation that the request goes on with, before its own input.
Status read_previous(const Json& body, const FindResponse& find, StoredResponse& stored, Json::Array& messages) {
  const std::string* previous = text_at(body, "previous_response_id");
  if (previous == nullptr) return {};
  const std::shared_ptr<const StoredResponse> before = find(*previous);
  if (before == nullptr) {
    return invalid("There is no response " + in_quotes(*previous, 64) +
                       " to go on from: it was never stored, was "
                       "deleted, or had to make room.",
                   "previous_response_id");
  }
  messages = before->messages;
  stored.input = before->input;
  const Result<Json> answer = parse_json(before->response);
  const Json* output = answer ? answer->find("output") : nullptr;
  if (output != nullptr) stored.input.insert(stored.input.end(), output->array()->begin(), output->array()->end());
  return {};
}

Status read_input(const Json& body, StoredResponse& stored, Json::Array& messages) {
  const Json* input = given(body, "input");
  if (input == nullptr) return invalid("input is missing; it must be a text or an array of items.", "input");
  if (input->string() != nullptr) {
    messages.push_back(chat_message("user", *input));
    Json item = chat_message(
        "user", Json(Json::Array{Json(Json::Object{{"type", Json(std::string("input_text"))}, {"text", *input}})}));
    set(item, "type", Json(std::string("message")));
    stored.input.push_back(std::move(item));
  } else if (input->array() != nullptr) {
    ItemReader reader(messages);
    for (size_t i = 0; i < input->array()->size(); ++i) {
      TRY(reader.read((*input->array())[i], "input[" + std::to_string(i) + "]"));
      stored.input.push_back((*input->array())[i]);
    }
  } else {
    return wrong_value("input", "a text or an array of items", *input);
  }
  for (Json& message : messages) {  // of an answer that had come no further than its reasoning
    if (message.find("reasoning_content") == nullptr || message.find("tool_calls") != nullptr) continue;
    for (auto& [name, value] : *message.object())
      if (name == "content" && value.is_null()) value = Json(std::string());
  }
  if (messages.empty()) return invalid("input is empty; it must have at least one item.", "input");
  return {};
}

Status read_response_tools(const Json& body, DialectBody& out) {
  if (const Json* tools = given(body, "tools")) {
    ToolReader reader;
    TRY(reader.read(*tools, "tools", ""));
    const std::string* word = given(body, "tool_choice") != nullptr ? given(body, "tool_choice")->string() : nullptr;
    TRY(check_left_out(reader.left_out, !reader.list.empty() || (word != nullptr && *word == "none"), ""));
    set(out.body, "tools", Json(std::move(reader.list)));
    out.call_forms = std::move(reader.forms);
  }
  if (const Json* choice = given(body, "tool_choice")) TRY(read_response_choice(*choice, out.body));
  return {};
}

}  // namespace

Result<DialectBody> body_of_response(const Json& body, const FindResponse& find) {
  if (body.object() == nullptr) return invalid(std::string("The body must be a JSON object, not ") + body.kind() + ".");
  DialectBody out;
  out.body = Json(Json::Object());
  Json& own = out.body;
  TRY(check_fields(Dialect::kResponses, body));
  ASSIGN_OR_RETURN(const bool is_included, includes_logprobs(body));
  carry(body, own,
        {{"model", "model"},
         {"max_output_tokens", "max_tokens"},
         {"temperature", "temperature"},
         {"top_p", "top_p"},
         {"presence_penalty", "presence_penalty"},
         {"frequency_penalty", "frequency_penalty"},
         {"stream", "stream"},
         {"parallel_tool_calls", "parallel_tool_calls"},
         {"seed", "seed"},
         {"cache_salt", "cache_salt"},
         {"resume", "resume"},
         {"resumable", "resumable"},
         {"return_progress", "return_progress"},
         {"timings_per_token", "timings_per_token"}});
  TRY(read_response_logprobs(body, is_included, own));
  const Json* metadata = given(body, "metadata");
  if (metadata != nullptr && (metadata->object() == nullptr || metadata->object()->size() > 16))
    return wrong_value("metadata", "an object of at most 16 texts", *metadata);

  auto stored = std::make_shared<StoredResponse>();
  Json::Array messages;
  TRY(read_previous(body, find, *stored, messages));
  TRY(read_input(body, *stored, messages));
  stored->messages = messages;
  if (const Json* instructions = given(body, "instructions")) {
    if (instructions->string() == nullptr) return wrong_value("instructions", "a text", *instructions);
    messages.insert(messages.begin(), chat_message("system", *instructions));
  }
  set(own, "messages", Json(std::move(messages)));
  TRY(read_response_tools(body, out));
  if (const Json* text = given(body, "text")) TRY(read_text_format(*text, own));
  if (const Json* reasoning = given(body, "reasoning")) {
    if (const Json* effort = given(*reasoning, "effort")) set(own, "reasoning_effort", *effort);
  }
  const Json* store = given(body, "store");
  if (store != nullptr && store->boolean() == nullptr) return wrong_value("store", "true or false", *store);
  out.is_stored = store == nullptr || *store->boolean();
  out.echo = std::make_shared<const Json>(echo_of(body));
  out.stored = std::move(stored);
  return out;
}

}  // namespace ibid
