// The prompts of the speculation benches (bench/prompts/speculation.txt), as a chat's.
#pragma once

#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "base/check.h"
#include "cli/measure/draft_prompts.h"

namespace ibid::bench {

using Prompt = cli::DraftPrompt;

inline std::vector<Prompt> read_prompts(const std::string& path) {
  std::ifstream in(path);
  CHECK(in.is_open(), "the prompts cannot be read; run it from the repository, or name the file");
  return cli::draft_prompts(std::string{std::istreambuf_iterator<char>(in), {}});
}

inline std::vector<TokenId> prompt_of(const ChatTemplate& chat, const Tokenizer& tokenizer, const std::string& text) {
  return cli::prompt_tokens(chat, tokenizer, text).value();
}

}  // namespace ibid::bench
