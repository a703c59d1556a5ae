#include "server/fields/body_parts.h"

#include <ctime>

#include "base/quoted.h"

namespace ibid {

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

Json picture_of_url(std::string url) {
  return Json(Json::Object{{"type", Json(std::string("image_url"))},
                           {"image_url", Json(Json::Object{{"url", Json(std::move(url))}})}});
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

std::string rfc3339(int64_t unix_seconds) {
  const std::time_t seconds = unix_seconds;
  std::tm parts{};
  gmtime_r(&seconds, &parts);
  char text[32];
  return {text, std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts)};
}

}  // namespace ibid
