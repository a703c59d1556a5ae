// The expected answer of a choice of a request, from the sampler and the tokens only: no engine, no cache, no batch,
// and stops searched for in the simplest way.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/state/request.h"
#include "text/tokenizer/tokenizer.h"

namespace ibid::sim {

// Sixteen tokens, some of several letters; the end has none.
std::shared_ptr<const Tokenizer> spelled_tokens();

struct Solo {
  std::vector<TokenId> tokens;     // prompt, then answer
  std::vector<uint64_t> prefixes;  // after each of them
  uint64_t scope = 0;              // before the first
  int32_t prompt_len = 0;
  std::vector<float> logprobs;  // of the answer, if asked for
  std::string text;
  std::string stop_text;
  FinishReason reason = FinishReason::kLength;
  int32_t n_answered() const { return static_cast<int32_t>(tokens.size()) - prompt_len; }
};

uint64_t scope_of(const Request& request);
Solo solo_answer(const Request& request, int32_t choice, int32_t context_len);
// The answer's first n tokens as text, with no stop looked for.
std::string text_of(const Solo& solo, int32_t n);
// Log-probability of the prompt's token at `position`.
float score_of(const Solo& solo, int32_t position);

}  // namespace ibid::sim
