// Log-probabilities as the two OpenAI endpoints and vLLM's prompt_logprobs write them.
#pragma once

#include <span>
#include <string>

#include "base/json_writer.h"
#include "engine/request.h"

namespace ibid {

class Tokenizer;

// A token as text; what is no UTF-8 by itself becomes U+FFFD (its bytes stand beside it).
std::string token_text(const Tokenizer& tokenizer, TokenId id);

// JSON has no minus infinity: it becomes -9999.0, the number that OpenAI's clients know for it.
void write_logprob(JsonWriter& json, float value);

struct LogprobExtras {
  bool processed = false;  // also the log-probabilities after the stages
  bool ids = false;        // also token ids
  bool as_ids = false;     // a token's text is "token_id:7"
};

// [{"token", "logprob", "bytes", "top_logprobs"}, ...].
void write_token_logprobs(JsonWriter& json, const Tokenizer& tokenizer, std::span<const TokenRecord> records,
                          LogprobExtras extras);

// {"content": [...], "refusal": null}.
void write_chat_logprobs(JsonWriter& json, const Tokenizer& tokenizer, std::span<const TokenRecord> records,
                         LogprobExtras extras);

// {"tokens", "token_logprobs", "top_logprobs", "text_offset"}. Ids of `prompt` come first, with null where
// `prompt_records` has none for their position. `n_code_points` of the text before; moves on.
void write_completion_logprobs(JsonWriter& json, const Tokenizer& tokenizer, std::span<const TokenId> prompt,
                               std::span<const TokenRecord> prompt_records, std::span<const TokenRecord> records,
                               LogprobExtras extras, size_t& n_code_points);

// [null, {"ID": {"logprob", "decoded_token"}, ...}, ...], one per prompt token.
void write_prompt_logprobs(JsonWriter& json, const Tokenizer& tokenizer, int32_t prompt_len,
                           std::span<const TokenRecord> records);

}  // namespace ibid
