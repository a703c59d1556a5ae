#include "server/dialects.h"

#include <cmath>
#include <concepts>
#include <ctime>

#include "base/quoted.h"
#include "sample/sampling_digest.h"

namespace ibid {

std::string rfc3339(int64_t unix_seconds) {
  const std::time_t seconds = unix_seconds;
  std::tm parts{};
  gmtime_r(&seconds, &parts);
  char text[32];
  return {text, std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts)};
}

std::string settings_json(const ApiRequest& api, const Vocabulary& vocabulary) {
  std::string out;
  JsonWriter json(out);
  json.begin_object().key("seed").large_integer(api.sampling.seed).field("n_predict", int64_t{api.max_tokens});
  for_each_parameter(api.sampling, [&]<typename T>(std::string_view name, const T& value) {
    if constexpr (std::same_as<T, float>) json.key(name).single(value);
    if constexpr (std::same_as<T, int32_t>) json.field(name, int64_t{value});
    if constexpr (std::same_as<T, bool>) json.key(name).boolean(value);
  });
  json.key("logit_bias").begin_array();
  const auto add_bias = [&](TokenId id) -> JsonWriter& {
    return json.begin_object().field("token", int64_t{raw(id)}).key("bias");
  };
  for (const auto& [id, bias] : api.sampling.logit_bias) {
    add_bias(id);
    std::isfinite(bias) ? json.single(bias) : json.null();
    json.end_object();
  }
  if (api.sampling.ignore_eos) {
    for (const TokenId id : vocabulary.end_of_generation) add_bias(id).null().end_object();
  }
  json.end_array();
  json.key("stop").begin_array();
  for (const std::string& stop : api.stop) json.string(stop);
  json.end_array()
      .field("n_probs", int64_t{api.want_logprobs ? api.top_logprobs : 0})
      .key("stream")
      .boolean(api.stream);
  json.end_object();
  return out;
}

const Json* given(const Json& body, std::string_view name) {
  const Json* value = body.find(name);
  return value != nullptr && !value->is_null() ? value : nullptr;
}

const std::string* text_at(const Json& object, std::string_view name) {
  const Json* value = object.find(name);
  return value != nullptr ? value->string() : nullptr;
}

Result<std::string> type_of(const Json& part, const std::string& where) {
  const std::string* type = text_at(part, "type");
  if (type == nullptr) return invalid(where + " must be an object with a type.", where);
  return *type;
}

Error unserved_type(const std::string& type, const std::string& where) {
  return unsupported(where + ".type is " + in_quotes(type, 32) + "; it is not served here.", where + ".type");
}

void set(Json& object, std::string name, Json value) {
  object.object()->emplace_back(std::move(name), std::move(value));
}

void carry(const Json& from, Json& to, std::initializer_list<std::pair<const char*, const char*>> names) {
  for (const auto& [name, as] : names) {
    if (const Json* value = given(from, name)) set(to, as, *value);
  }
}

Result<DialectBody> body_of_chat_batch(Json body) {
  Json::Object* members = body.object();
  if (members == nullptr) return invalid(std::string("The body must be a JSON object, not ") + body.kind() + ".");
  DialectBody out;
  for (auto& [name, value] : *members) {
    if (name == "messages") {
      Json::Array* conversations = value.array();
      if (conversations == nullptr || conversations->empty() || conversations->front().array() == nullptr)
        return invalid("messages must be an array of conversations, each an array of messages.", "messages");
      out.conversations.assign(std::make_move_iterator(conversations->begin() + 1),
                               std::make_move_iterator(conversations->end()));
      Json first = std::move(conversations->front());
      value = std::move(first);
    } else if ((name == "stream" || name == "echo") && value.boolean() != nullptr && *value.boolean()) {
      return unsupported(name + " is not served for several conversations; leave it out.", name);
    }
  }
  out.body = std::move(body);
  return out;
}

Json chat_message(const char* role, Json content) {
  return Json(Json::Object{{"role", Json(std::string(role))}, {"content", std::move(content)}});
}

Json function_tool(const Json& name, const Json* description, const Json* parameters, const Json* strict) {
  Json function(Json::Object{{"name", name}});
  if (description != nullptr) set(function, "description", *description);
  if (parameters != nullptr) set(function, "parameters", *parameters);
  if (strict != nullptr) set(function, "strict", *strict);
  return Json(Json::Object{{"type", Json(std::string("function"))}, {"function", std::move(function)}});
}

Json function_call(const std::string& id, const std::string& name, std::string arguments) {
  return Json(
      Json::Object{{"id", Json(id)},
                   {"type", Json(std::string("function"))},
                   {"function", Json(Json::Object{{"name", Json(name)}, {"arguments", Json(std::move(arguments))}})}});
}

}  // namespace ibid
