// From messages to a prompt's tokens.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "text/jinja/chat_template.h"
#include "text/tokenizer/tokenizer.h"

namespace ibid::cli {

struct ChatMessage {
  std::string role;
  std::string content;
};

// Special tokens spelled in the messages are plain text. An empty `system` adds no system message.
Result<std::vector<TokenId>> chat_prompt(const ChatTemplate& chat, const Tokenizer& tokenizer,
                                         const std::string& system, const std::vector<ChatMessage>& messages);

}  // namespace ibid::cli
