// What `ibid template` is given: a JSON list of messages, or an object with messages and more variables.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "text/jinja/chat_template.h"

namespace ibid::cli {

// An object has "messages", and may have "tools", "documents" and "chat_template_kwargs" (an object of variables); its
// other members are variables too. Values reach the template as they are written, numbers with all their digits.
// `where` names the text in errors.
Result<ChatInput> read_chat_input(std::string_view json, const std::string& where);

}  // namespace ibid::cli
