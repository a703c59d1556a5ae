// Texts that drafts of tokens are measured over (docs/users/speculation.md): prompts of a file, those that ibid
// carries, and pieces of any text, whose answers are the model's own.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "text/jinja/chat_template.h"
#include "text/tokenizer/tokenizer.h"

namespace ibid::cli {

struct DraftPrompt {
  std::string kind, text;
};

// As bench/prompts/speculation.txt has them: a line "== KIND" opens one, "== passage N" a passage, which the prompts
// "== KIND N" have before them, and lines that begin with "#" are none. Without such lines, each line is a prompt.
std::vector<DraftPrompt> draft_prompts(std::string_view file);
// Five, of code, an edit, a summary, JSON and chat.
std::vector<DraftPrompt> own_draft_prompts();

// As a user's message of a chat.
Result<std::vector<TokenId>> prompt_tokens(const ChatTemplate& chat, const Tokenizer& tokenizer,
                                           const std::string& text);
// At most n_most pieces of piece_len tokens, evenly spread; a shorter text is one.
std::vector<std::vector<TokenId>> pieces_of(const std::vector<TokenId>& text, size_t piece_len, size_t n_most);

}  // namespace ibid::cli
