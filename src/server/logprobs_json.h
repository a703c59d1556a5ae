// Log-probabilities as the two OpenAI endpoints and vLLM's prompt_logprobs write them.
#pragma once

#include <span>
#include <string>

#include "engine/request.h"
#include "server/json.h"

namespace ibid {

class Tokenizer;

// A token as text; what is no UTF-8 by itself becomes U+FFFD (its bytes stand beside it).
std::string token_text(const Tokenizer& tokenizer, TokenId id);

// {"content": [...], "refusal": null}; `processed` adds processed_logprob to each entry.
void write_chat_logprobs(JsonWriter& json, const Tokenizer& tokenizer, std::span<const TokenRecord> records,
                         bool processed);

// {"tokens", "token_logprobs", "top_logprobs", "text_offset"}. Ids of `prompt` come first, with null where
// `prompt_records` has none for their position. `n_code_points` of the text before; moves on.
void write_completion_logprobs(JsonWriter& json, const Tokenizer& tokenizer, std::span<const TokenId> prompt,
                               std::span<const TokenRecord> prompt_records, std::span<const TokenRecord> records,
                               bool processed, size_t& n_code_points);

// [null, {"ID": {"logprob", "decoded_token"}, ...}, ...], one per prompt token.
void write_prompt_logprobs(JsonWriter& json, const Tokenizer& tokenizer, int32_t prompt_len,
                           std::span<const TokenRecord> records);

// One record for each draw: what SPEC rows T1-T3 ask for.
void write_trace(JsonWriter& json, std::span<const TokenRecord> records, uint64_t seed);

}  // namespace ibid
