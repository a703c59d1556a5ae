// Log-probabilities as the two OpenAI endpoints and vLLM's prompt_logprobs write them.
#pragma once

#include <span>
#include <string>

#include "base/json_writer.h"
#include "engine/state/request.h"
#include "text/output/utf8_mender.h"

namespace ibid {

class Tokenizer;

// A token as text, by itself; what is no UTF-8 becomes U+FFFD.
std::string token_text(const Tokenizer& tokenizer, TokenId id);

// Where an answer's tokens stand as text. A character may be cut over tokens: the one that ends it has it whole and
// those before have "" (vLLM's rule, v1/engine/logprobs.py), so that these texts add up to the answer's. Candidates of
// a position have texts after the same tokens as the chosen one. A small value; an answer carries one over its events.
struct TokenTexts {
  Utf8Mender pending;        // bytes of a character that no token has ended yet
  size_t n_code_points = 0;  // written so far, for text_offset
};

// Moves `texts` past tokens that are not written.
void step_past(const Tokenizer& tokenizer, std::span<const TokenRecord> records, TokenTexts& texts);

// JSON has no minus infinity: it becomes -9999.0, the number that OpenAI's clients know for it.
void write_logprob(JsonWriter& json, float value);

struct LogprobExtras {
  bool processed = false;  // also the log-probabilities after the stages
  bool ids = false;        // also token ids
  bool as_ids = false;     // a token's text is "token_id:7"
};

// [{"token", "logprob", "bytes", "top_logprobs"}, ...]. `texts` moves on, here and below.
void write_token_logprobs(JsonWriter& json, const Tokenizer& tokenizer, std::span<const TokenRecord> records,
                          LogprobExtras extras, TokenTexts& texts);

// {"content": [...], "refusal": null}.
void write_chat_logprobs(JsonWriter& json, const Tokenizer& tokenizer, std::span<const TokenRecord> records,
                         LogprobExtras extras, TokenTexts& texts);

// {"tokens", "token_logprobs", "top_logprobs", "text_offset"}. Ids of `prompt` come first, with null where
// `prompt_records` has none for their position.
void write_completion_logprobs(JsonWriter& json, const Tokenizer& tokenizer, std::span<const TokenId> prompt,
                               std::span<const TokenRecord> prompt_records, std::span<const TokenRecord> records,
                               LogprobExtras extras, TokenTexts& texts);

// [null, {"ID": {"logprob", "decoded_token"}, ...}, ...], one per prompt token.
void write_prompt_logprobs(JsonWriter& json, const Tokenizer& tokenizer, int32_t prompt_len,
                           std::span<const TokenRecord> records);

}  // namespace ibid
