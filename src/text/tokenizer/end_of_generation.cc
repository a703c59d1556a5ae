#include "text/tokenizer/end_of_generation.h"

#include <algorithm>
#include <string_view>

namespace ibid {
namespace {

// One spelling ends an answer whatever else the vocabulary holds.
constexpr std::string_view kSpellings[] = {
    "<|eot_id|>", "<|eom_id|>", "<|im_end|>", "<|end|>", "<|return|>", "<|call|>", "<|flush|>", "<|calls|>",
    "<end_of_turn>", "<|endoftext|>", "<EOT>", "_<EOT>", "[EOT]", "[EOS]", "<|end_of_text|>", "<end_of_utterance>",
    "<｜end▁of▁sentence｜>", "<turn|>", "<|tool_response>", "[e~[",
    // Code models separate files and repositories with these; an answer is over when one comes.
    "<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>",
    "<reponame>", "<|file_sep|>"};

// For control tokens only: HTML's tags and the like are text in other vocabularies.
constexpr std::string_view kControlSpellings[] = {"</s>", "<eos>", "[PAD]"};

template <size_t n>
bool among(const std::string_view (&spellings)[n], std::string_view token) {
  return std::find(std::begin(spellings), std::end(spellings), token) != std::end(spellings);
}

}  // namespace

std::vector<TokenId> find_end_of_generation(const Vocabulary& v, std::span<const TokenId> named) {
  std::vector<TokenId> ends(named.begin(), named.end());
  if (v.eos != TokenId::kNone) ends.push_back(v.eos);
  const size_t n_named = ends.size();
  bool has_return = false, has_call = false, has_calls = false, has_flush = false;
  for (size_t i = 0; i < v.tokens.size(); ++i) {
    const std::string& token = v.tokens[i];
    // The shortest has four bytes; most tokens of a vocabulary begin otherwise.
    if (token.size() < 4 || (token[0] != '<' && token[0] != '[' && token[0] != '_')) continue;
    const bool control = !v.types.empty() && v.types[i] == TokenType::kControl;
    if (!among(kSpellings, token) && !(control && among(kControlSpellings, token))) continue;
    has_return |= token == "<|return|>";
    has_call |= token == "<|call|>";
    has_calls |= token == "<|calls|>";
    has_flush |= token == "<|flush|>";
    ends.push_back(static_cast<TokenId>(i));
  }
  // In the harmony format, and in solar-open's, <|end|> closes one message of several; the others end the answer.
  if ((has_return && has_call) || (has_flush && (has_call || has_calls))) {
    ends.erase(std::remove_if(ends.begin() + static_cast<std::ptrdiff_t>(n_named), ends.end(),
                              [&v](TokenId id) { return v.tokens[static_cast<size_t>(raw(id))] == "<|end|>"; }),
               ends.end());
  }
  std::sort(ends.begin(), ends.end());
  ends.erase(std::unique(ends.begin(), ends.end()), ends.end());
  return ends;
}

}  // namespace ibid
