#include "text/end_of_generation.h"

#include <algorithm>
#include <string_view>

namespace ibid {

std::vector<TokenId> find_end_of_generation(const Vocabulary& v) {
  static constexpr std::string_view kSpellings[] = {
      "<|eot_id|>",    "<|eom_id|>",         "<|im_end|>",           "<|end|>", "<|return|>", "<|call|>",
      "<end_of_turn>", "<|endoftext|>",      "<|end_of_text|>",      "<EOT>",   "_<EOT>",     "[EOT]",
      "[EOS]",         "<end_of_utterance>", "<｜end▁of▁sentence｜>"};
  auto has = [&v](std::string_view s) { return std::find(v.tokens.begin(), v.tokens.end(), s) != v.tokens.end(); };
  std::vector<TokenId> ends;
  for (size_t i = 0; i < v.tokens.size(); ++i) {
    const std::string& token = v.tokens[i];
    auto id = static_cast<TokenId>(i);
    bool spelled = token.size() >= 5 && (token[0] == '<' || token[0] == '[' || token[0] == '_') &&
                   std::find(std::begin(kSpellings), std::end(kSpellings), token) != std::end(kSpellings);
    if (id == v.eos || spelled) ends.push_back(id);
  }
  // In the harmony format <|end|> closes one message of several; <|return|> and <|call|> end the answer.
  if (has("<|return|>") && has("<|call|>")) {
    std::erase_if(ends,
                  [&v](TokenId id) { return id != v.eos && v.tokens[static_cast<size_t>(raw(id))] == "<|end|>"; });
  }
  return ends;
}

}  // namespace ibid
