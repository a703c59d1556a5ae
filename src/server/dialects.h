// Dialects: the bodies of other APIs, in the words of our own two. What they ask for and we have becomes a field of
// /v1/chat/completions or /v1/completions, which is then read and checked as there; what nobody serves here is refused
// by its name in the API that asked.
#pragma once

#include <memory>
#include <string>

#include "base/json.h"
#include "base/result.h"
#include "server/api_request.h"

namespace ibid {

struct DialectBody {
  Endpoint endpoint = Endpoint::kChat;
  Json body;
};

// Anthropic's Messages. `counts`: of /v1/messages/count_tokens, which wants no max_tokens.
Result<DialectBody> body_of_messages(const Json& body, bool counts = false);

// Shared by the readers. The member, or null where it is absent or null itself.
const Json* given(const Json& body, std::string_view name);
const std::string* text_at(const Json& object, std::string_view name);  // null where it is no text
void set(Json& object, std::string name, Json value);
// Copies the members that are there, from one name to another.
void carry(const Json& from, Json& to, std::initializer_list<std::pair<const char*, const char*>> names);
Json chat_message(const char* role, Json content);
Json function_tool(const Json& name, const Json* description, const Json* parameters, const Json* strict);
// A call as a chat's message has it.
Json function_call(const std::string& id, const std::string& name, std::string arguments);

}  // namespace ibid
