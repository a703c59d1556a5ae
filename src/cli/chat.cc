#include "cli/chat.h"

#include "cli/loading.h"
#include "server/build_requests.h"

namespace ibid::cli {

Result<std::vector<TokenId>> chat_prompt(const ChatTemplate& chat, const Tokenizer& tokenizer,
                                         const std::string& system, const std::vector<ChatMessage>& messages) {
  ChatInput input;
  name_tokens(tokenizer, input);
  input.messages = "[";
  auto add = [&input](const std::string& role, const std::string& content) {
    if (input.messages.size() > 1) input.messages += ",";
    input.messages += "{\"role\":" + json_string(role) + ",\"content\":" + json_string(content) + "}";
  };
  if (!system.empty()) add("system", system);
  for (const ChatMessage& m : messages) add(m.role, m.content);
  input.messages += "]";
  ASSIGN_OR_RETURN(RenderedPrompt prompt, chat.render(input));
  return encode_chat({std::move(prompt.text), std::move(prompt.plain_ranges)}, tokenizer);
}

}  // namespace ibid::cli
