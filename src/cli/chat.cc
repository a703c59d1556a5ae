#include "cli/chat.h"

#include "server/build_requests.h"

namespace ibid::cli {

Result<std::vector<TokenId>> chat_prompt(const ChatTemplate& chat, const Tokenizer& tokenizer,
                                         const std::string& system, const std::vector<ChatMessage>& messages) {
  Json::Array list;
  auto add = [&list](const std::string& role, const std::string& content) {
    list.emplace_back(Json::Object{{"role", Json(role)}, {"content", Json(content)}});
  };
  if (!system.empty()) add("system", system);
  for (const ChatMessage& m : messages) add(m.role, m.content);
  ASSIGN_OR_RETURN(const RenderedPrompt prompt, render_chat(chat, tokenizer, {.messages = Json(std::move(list))}));
  return encode_chat(prompt, tokenizer);
}

}  // namespace ibid::cli
