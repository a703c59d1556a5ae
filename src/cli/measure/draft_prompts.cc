#include "cli/measure/draft_prompts.h"

#include <algorithm>
#include <map>
#include <utility>

#include "base/json.h"
#include "server/request/build_requests.h"

namespace ibid::cli {
namespace {

constexpr std::string_view kOpens = "== ";

constexpr std::string_view kOwn = R"(== passage 1
The harbour museum opens at ten on weekdays and at noon on Sundays. It was founded in 1931 by two shipwrights, Ada Brook
and Tomas Riel, who gave it forty models of fishing boats. Tickets cost six pounds; children under twelve pay nothing.
The large crane beside it has not lifted anything since 1974, but its motor still turns once a year, on the third of May.
== code
Write a Python function that reads a CSV file of names and ages and returns the average age of the people over eighteen.
== edit 1
Repeat this text, but write 1932 wherever it says 1931.
== summary 1
Summarise this text in two sentences.
== json 1
Write what this text says of the museum as one JSON object with the keys opens, founders, founded and ticket_price.
== chat
What should I pack for a week of walking in the mountains in autumn?
)";

}  // namespace

std::vector<DraftPrompt> draft_prompts(std::string_view file) {
  std::map<std::string, std::string, std::less<>> passages;
  std::vector<DraftPrompt> out;
  std::string kind, number, text;
  const bool has_kinds = file.starts_with(kOpens) || file.find("\n" + std::string(kOpens)) != std::string_view::npos;
  const auto close = [&] {
    if (kind == "passage") passages[number] = text;
    if (kind != "passage" && !kind.empty())
      out.push_back({kind, number.empty() ? text : passages[number] + "\n" + text});
    text.clear();
  };
  while (!file.empty()) {
    const size_t end = std::min(file.find('\n'), file.size());
    const std::string_view line = file.substr(0, end);
    file.remove_prefix(std::min(end + 1, file.size()));
    if (line.starts_with("#")) continue;
    if (!has_kinds) {
      if (!line.empty()) out.push_back({"text", std::string(line)});
      continue;
    }
    if (!line.starts_with(kOpens)) {
      text.append(line).append("\n");
      continue;
    }
    close();
    const size_t space = line.find(' ', kOpens.size());
    kind = line.substr(kOpens.size(), space == std::string_view::npos ? space : space - kOpens.size());
    number = space == std::string_view::npos ? "" : line.substr(space + 1);
  }
  if (has_kinds) close();
  return out;
}

std::vector<DraftPrompt> own_draft_prompts() { return draft_prompts(kOwn); }

Result<std::vector<TokenId>> prompt_tokens(const ChatTemplate& chat, const Tokenizer& tokenizer,
                                           const std::string& text) {
  Json::Array messages;
  messages.emplace_back(Json::Object{{"role", Json(std::string("user"))}, {"content", Json(text)}});
  ASSIGN_OR_RETURN(const RenderedPrompt prompt, render_chat(chat, tokenizer, {.messages = Json(std::move(messages))}));
  return encode_chat(prompt, tokenizer);
}

std::vector<std::vector<TokenId>> pieces_of(const std::vector<TokenId>& text, size_t piece_len, size_t n_most) {
  const size_t n = std::min(n_most, text.size() / piece_len);
  if (n == 0) return {text};
  std::vector<std::vector<TokenId>> out;
  for (size_t i = 0; i < n; ++i) {
    const auto begin = text.begin() + static_cast<std::ptrdiff_t>(text.size() / n * i);
    out.emplace_back(begin, begin + static_cast<std::ptrdiff_t>(piece_len));
  }
  return out;
}

}  // namespace ibid::cli
