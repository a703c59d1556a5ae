// Ollama's chat and generate to ours. Its defaults of sampling are its own, and are set here.
#include "server/dialects/dialects.h"
#include "server/fields/body_parts.h"
#include "server/fields/dialect_table.h"
#include "server/fields/read_fields.h"

namespace ibid {
namespace {

Status read_options(const Json& options, int32_t context_len, Json& out) {
  if (options.object() == nullptr) return wrong_value("options", "an object", options);
  carry(options, out,
        {{"seed", "seed"},
         {"temperature", "temperature"},
         {"top_k", "top_k"},
         {"top_p", "top_p"},
         {"min_p", "min_p"},
         {"typical_p", "typical_p"},
         {"repeat_last_n", "repeat_last_n"},
         {"repeat_penalty", "repeat_penalty"},
         {"presence_penalty", "presence_penalty"},
         {"frequency_penalty", "frequency_penalty"},
         {"stop", "stop"},
         {"mirostat", "mirostat"},
         {"mirostat_tau", "mirostat_tau"},
         {"mirostat_eta", "mirostat_eta"}});
  if (const Json* n = given(options, "num_predict")) {
    ASSIGN_OR_RETURN(const int64_t most, read_integer(*n, -2, INT32_MAX, "options.num_predict"));
    if (most >= 0) set(out, "max_tokens", Json(most));  // below: up to the context
  }
  if (const Json* n = given(options, "num_ctx")) {
    ASSIGN_OR_RETURN(const int64_t len, read_integer(*n, 1, INT32_MAX, "options.num_ctx"));
    if (len > context_len) {
      return unsupported("options.num_ctx is " + std::to_string(len) + "; the model is served with a context of " +
                             std::to_string(context_len) + " tokens (--ctx), and nothing is cut off in silence.",
                         "options.num_ctx");
    }
  }
  return {};
}

Status read_thinks(const Json& think, Json& out) {
  if (think.boolean() != nullptr) {
    set(out, "chat_template_kwargs", Json(Json::Object{{"enable_thinking", think}, {"thinking", think}}));
    return {};
  }
  if (think.string() == nullptr) return wrong_value("think", "true, false, or low, medium or high", think);
  set(out, "reasoning_effort", think);
  return {};
}

Status read_ollama_format(const Json& format, Json& out) {
  if (format.string() != nullptr && format.string()->empty()) return {};
  const bool any = format.string() != nullptr && *format.string() == "json";
  if (!any && format.object() == nullptr) return wrong_value("format", "\"json\" or a JSON Schema", format);
  Json wanted(Json::Object{{"type", Json(std::string(any ? "json_object" : "json_schema"))}});
  if (!any) set(wanted, "schema", format);
  set(out, "response_format", std::move(wanted));
  return {};
}

bool has_any(const Json& body, const char* name) {
  const Json* value = given(body, name);
  if (value == nullptr) return false;
  return !(value->array() != nullptr && value->array()->empty()) &&
         !(value->string() != nullptr && value->string()->empty()) &&
         !(value->boolean() != nullptr && !*value->boolean());
}

// Pictures in base64 as parts of a message, which come before its text.
Result<Json::Array> read_ollama_images(const Json& images, const std::string& where) {
  if (images.array() == nullptr) return wrong_value(where, "an array of pictures in base64", images);
  Json::Array parts;
  for (const Json& image : *images.array()) {
    if (image.string() == nullptr) return wrong_value(where, "an array of pictures in base64", images);
    parts.push_back(picture_of_url(*image.string()));
  }
  return parts;
}

Result<Json> read_ollama_message(const Json& message, const std::string& where) {
  if (message.object() == nullptr) return wrong_value(where, "an object with role and content", message);
  Json out{Json::Object()};
  carry(message, out,
        {{"role", "role"},
         {"tool_calls", "tool_calls"},
         {"thinking", "reasoning_content"},
         {"tool_name", "name"},
         {"tool_call_id", "tool_call_id"}});
  const Json* content = given(message, "content");
  if (!has_any(message, "images")) {
    set(out, "content", content != nullptr ? *content : Json(std::string()));
    return out;
  }
  ASSIGN_OR_RETURN(Json::Array parts, read_ollama_images(*given(message, "images"), where + ".images"));
  if (content != nullptr && content->string() != nullptr)
    parts.push_back(Json(Json::Object{{"type", Json(std::string("text"))}, {"text", *content}}));
  set(out, "content", Json(std::move(parts)));
  return out;
}

// What is answered without the model: an empty request loads it, or lets it go.
Result<std::string> loaded(const Json& body, const ModelInfo& model, bool generate, bool may_unload) {
  const Json* keep = given(body, "keep_alive");
  const bool unloads = keep != nullptr && ends_at_once(*keep);
  if (unloads && !may_unload)
    return unsupported("This server has one model, which stays loaded as long as it runs.", "keep_alive");
  std::string out;
  JsonWriter json(out);
  json.begin_object().field("model", model.name).field("created_at", rfc3339(model.created));
  if (generate) {
    json.field("response", "");
  } else {
    json.key("message").begin_object().field("role", "assistant").field("content", "").end_object();
  }
  json.key("done").boolean(true).field("done_reason", unloads ? "unload" : "load").end_object();
  return out + "\n";
}

}  // namespace

bool ends_at_once(const Json& keep_alive) {
  if (keep_alive.is_number()) return keep_alive.number() == 0;
  const std::string* text = keep_alive.string();
  return text != nullptr && (*text == "0" || *text == "0s" || *text == "0m" || *text == "0h");
}

Result<DialectBody> body_of_ollama(const Json& body, bool generate, const ModelInfo& model, bool may_unload) {
  if (body.object() == nullptr) return invalid(std::string("The body must be a JSON object, not ") + body.kind() + ".");
  DialectBody out;
  out.body = Json(Json::Object());
  Json& own = out.body;
  if (const std::string* name = text_at(body, "model"))
    set(own, "model", Json(name->ends_with(":latest") ? name->substr(0, name->size() - 7) : *name));
  const Json* stream = given(body, "stream");
  set(own, "stream", stream != nullptr ? *stream : Json(true));
  carry(body, own, {{"resume", "resume"}, {"resumable", "resumable"}});
  if (const Json* options = given(body, "options")) TRY(read_options(*options, model.context_len, own));
  for (const auto& [name, value] : {std::pair{"temperature", 0.8}, std::pair{"top_k", 40.0}, std::pair{"top_p", 0.9},
                                    std::pair{"repeat_penalty", 1.1}, std::pair{"repeat_last_n", 64.0}})
    if (own.find(name) == nullptr) set(own, name, Json(value));
  if (const Json* format = given(body, "format")) TRY(read_ollama_format(*format, own));
  if (const Json* think = given(body, "think")) TRY(read_thinks(*think, own));
  TRY(check_fields(Dialect::kOllama, body));
  if (!generate) {
    carry(body, own, {{"tools", "tools"}});
    const Json* messages = given(body, "messages");
    if (messages == nullptr || (messages->array() != nullptr && messages->array()->empty())) {
      ASSIGN_OR_RETURN(out.answer, loaded(body, model, generate, may_unload));
      return out;
    }
    if (messages->array() == nullptr) return wrong_value("messages", "an array of messages", *messages);
    Json::Array list;
    for (size_t i = 0; i < messages->array()->size(); ++i) {
      ASSIGN_OR_RETURN(Json message,
                       read_ollama_message((*messages->array())[i], "messages[" + std::to_string(i) + "]"));
      list.push_back(std::move(message));
    }
    if (has_any(body, "images")) return invalid("images are a message's, or stand beside a prompt.", "images");
    set(own, "messages", Json(std::move(list)));
    return out;
  }
  const Json* prompt = given(body, "prompt");
  if (prompt == nullptr || (prompt->string() != nullptr && prompt->string()->empty())) {
    ASSIGN_OR_RETURN(out.answer, loaded(body, model, generate, may_unload));
    return out;
  }
  if (prompt->string() == nullptr) return wrong_value("prompt", "a text", *prompt);
  if (has_any(body, "raw") || has_any(body, "suffix")) {
    out.endpoint = Endpoint::kCompletions;
    carry(body, own, {{"prompt", "prompt"}, {"suffix", "suffix"}});
    return out;
  }
  Json::Array list;
  if (has_any(body, "system")) list.push_back(chat_message("system", *given(body, "system")));
  Json shown(Json::Object{{"role", Json(std::string("user"))}, {"content", *prompt}});
  if (has_any(body, "images")) set(shown, "images", *given(body, "images"));
  ASSIGN_OR_RETURN(Json message, read_ollama_message(shown, "prompt"));
  list.push_back(std::move(message));
  set(own, "messages", Json(std::move(list)));
  return out;
}

}  // namespace ibid
