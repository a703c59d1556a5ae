// What readers of JSON bodies share: members by name, and the messages, tools and calls of a chat in OpenAI's form.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>

#include "base/json.h"
#include "base/result.h"

namespace ibid {

// The member, or null where it is absent or null itself.
const Json* given(const Json& body, std::string_view name);
const std::string* text_at(const Json& object, std::string_view name);  // null where it is no text
// The type of a part of a list, which must state it; the error names the place.
Result<std::string> type_of(const Json& part, const std::string& where);
Error unserved_type(const std::string& type, const std::string& where);
void set(Json& object, std::string name, Json value);
// Copies the members that are there, from one name to another.
void carry(const Json& from, Json& to, std::initializer_list<std::pair<const char*, const char*>> names);
Json chat_message(const char* role, Json content);
Json picture_of_url(std::string url);  // a part of a message's content
Json function_tool(const Json& name, const Json* description, const Json* parameters, const Json* strict);
std::string rfc3339(int64_t unix_seconds);
// A call as a chat's message has it.
Json function_call(const std::string& id, const std::string& name, std::string arguments);

}  // namespace ibid
