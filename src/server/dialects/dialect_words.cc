#include "server/dialects/dialect_words.h"

#include <array>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace ibid {
namespace {

struct Word {
  std::string_view ours, theirs;
  bool has_places = false;  // "messages[2].content" is named as the whole: the list is made again, with other places
};

constexpr auto kMessages = std::to_array<Word>({{"stop", "stop_sequences"},
                                                {"continue_final_message", "messages"},
                                                {"messages", "messages", true},
                                                {"function.parameters", "input_schema"},
                                                {"function.name", "name"},
                                                {"function.description", "description"},
                                                {"parallel_tool_calls", "tool_choice.disable_parallel_tool_use"},
                                                {"thinking_token_budget", "thinking.budget_tokens"},
                                                {"chat_template_kwargs", "thinking"},
                                                {"reasoning_effort", "output_config.effort"},
                                                {"response_format", "output_config.format"}});

constexpr auto kResponses = std::to_array<Word>({{"max_tokens", "max_output_tokens"},
                                                 {"continue_final_message", "input"},
                                                 {"messages", "input", true},
                                                 {"function.parameters", "parameters"},
                                                 {"function.name", "name"},
                                                 {"function.description", "description"},
                                                 {"chat_template_kwargs", "reasoning"},
                                                 {"reasoning_effort", "reasoning.effort"},
                                                 {"response_format", "text.format"},
                                                 {"logprobs", "top_logprobs"}});

constexpr auto kOllama = std::to_array<Word>({{"max_tokens", "options.num_predict"},
                                              {"seed", "options.seed"},
                                              {"temperature", "options.temperature"},
                                              {"top_k", "options.top_k"},
                                              {"top_p", "options.top_p"},
                                              {"min_p", "options.min_p"},
                                              {"typical_p", "options.typical_p"},
                                              {"repeat_last_n", "options.repeat_last_n"},
                                              {"repeat_penalty", "options.repeat_penalty"},
                                              {"presence_penalty", "options.presence_penalty"},
                                              {"frequency_penalty", "options.frequency_penalty"},
                                              {"stop", "options.stop"},
                                              {"mirostat", "options.mirostat"},
                                              {"mirostat_tau", "options.mirostat_tau"},
                                              {"mirostat_eta", "options.mirostat_eta"},
                                              {"continue_final_message", "messages"},
                                              {"reasoning_content", "thinking"},
                                              {"chat_template_kwargs", "think"},
                                              {"reasoning_effort", "think"},
                                              {"response_format.schema", "format"},
                                              {"response_format", "format"}});

// A text of its own, which is read as a conversation.
constexpr auto kOllamaText = std::to_array<Word>({{"messages", "prompt", true}});

constexpr auto kLlama = std::to_array<Word>({{"max_tokens", "n_predict"}, {"logprobs", "n_probs"}});

bool is_of_name(char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_'; }

// The first place from `at` on where the name stands as a whole.
size_t find_name(std::string_view text, std::string_view name, size_t at) {
  for (at = text.find(name, at); at != text.npos; at = text.find(name, at + 1)) {
    const bool begins = at == 0 || (!is_of_name(text[at - 1]) && text[at - 1] != '.');
    const size_t end = at + name.size();
    const bool is_within = at > 0 && text[at - 1] == '.' && name.find('.') != name.npos;  // "tools[0].function.name"
    if ((begins || is_within) && (end == text.size() || !is_of_name(text[end]))) return at;
  }
  return text.npos;
}

// What stands after a name: "[2].content[0]".
size_t end_of_place(std::string_view text, size_t at) {
  while (at < text.size()) {
    if (text[at] == '[') {
      const size_t end = text.find(']', at);
      if (end == text.npos) return at;
      at = end + 1;
    } else if (text[at] == '.' && at + 1 < text.size() && is_of_name(text[at + 1])) {
      for (++at; at < text.size() && is_of_name(text[at]);) ++at;
    } else {
      return at;
    }
  }
  return at;
}

// Words of English are names where the error is about them, or where a place follows.
bool is_plain(std::string_view name) { return name.find_first_of("_.") == name.npos; }

void replace(std::string& text, const Word& word, bool is_about) {
  for (size_t at = find_name(text, word.ours, 0); at != text.npos; at = find_name(text, word.ours, at)) {
    size_t end = at + word.ours.size();
    const bool has_place = end < text.size() && text[end] == '[';
    if (word.has_places) end = end_of_place(text, end);
    const bool is_name = !is_plain(word.ours) || has_place || (is_about && at == 0);
    if (is_name) text.replace(at, end - at, word.theirs);
    at += is_name ? word.theirs.size() : word.ours.size();
  }
}

ApiError renamed(std::span<const Word> words, ApiError error) {
  for (const Word& word : words) {
    const bool is_about = find_name(error.param, word.ours, 0) == 0;
    replace(error.message, word, is_about);
    replace(error.param, word, true);
  }
  return error;
}

}  // namespace

ApiError in_words_of_messages(ApiError error) { return renamed(kMessages, std::move(error)); }
ApiError in_words_of_responses(ApiError error) { return renamed(kResponses, std::move(error)); }
ApiError in_words_of_ollama_chat(ApiError error) { return renamed(kOllama, std::move(error)); }
ApiError in_words_of_ollama_generate(ApiError error) {
  return renamed(kOllama, renamed(kOllamaText, std::move(error)));
}
ApiError in_words_of_llama(ApiError error) { return renamed(kLlama, std::move(error)); }

}  // namespace ibid
