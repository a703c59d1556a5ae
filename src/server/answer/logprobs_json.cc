#include "server/answer/logprobs_json.h"

#include <algorithm>
#include <cmath>

#include "base/utf8.h"
#include "text/tokenizer/tokenizer.h"

namespace ibid {
namespace {

std::string spelled(const Tokenizer& tokenizer, TokenId id, LogprobExtras extras, Utf8Mender before) {
  if (extras.as_ids) return "token_id:" + std::to_string(raw(id));
  std::string text;
  before.push(tokenizer.token_bytes(id, true), text);
  return text;
}

void step_past(const Tokenizer& tokenizer, TokenId id, TokenTexts& texts) {
  std::string text;
  texts.pending.push(tokenizer.token_bytes(id, true), text);
  texts.n_code_points += utf8::count(text);
}

void write_entry(JsonWriter& json, const Tokenizer& tokenizer, const TokenLogprob& token, LogprobExtras extras,
                 Utf8Mender before) {
  if (extras.ids) json.field("id", int64_t{raw(token.token)});
  json.key("token").string(spelled(tokenizer, token.token, extras, before));
  json.key("logprob");
  write_logprob(json, token.raw);
  if (extras.processed) {
    json.key("processed_logprob");
    write_logprob(json, token.processed);
  }
  json.key("bytes").begin_array();
  for (const char c : tokenizer.token_bytes(token.token, true)) json.integer(static_cast<unsigned char>(c));
  json.end_array();
}

// The record of a prompt's position, or null; positions are asked for in ascending order. The first token has none:
// nothing came before it.
class PromptCursor {
 public:
  explicit PromptCursor(std::span<const TokenRecord> records) : records_(records) {}
  const TokenRecord* at(size_t position) {
    while (next_ < records_.size() && records_[next_].position < static_cast<int32_t>(position)) ++next_;
    const bool here = next_ < records_.size() && records_[next_].position == static_cast<int32_t>(position);
    return here && position > 0 ? &records_[next_] : nullptr;
  }

 private:
  std::span<const TokenRecord> records_;
  size_t next_ = 0;
};

struct TokenRow {
  TokenId id;
  const TokenRecord* record;  // null: nothing is known of it
  TokenTexts texts;           // before it
};

// Texts to log-probabilities, row by row.
void write_top_column(JsonWriter& json, const Tokenizer& tokenizer, std::span<const TokenRow> rows,
                      float TokenLogprob::*which, LogprobExtras extras) {
  json.begin_array();
  for (const auto& [id, record, texts] : rows) {
    if (record == nullptr) {
      json.null();
      continue;
    }
    json.begin_object();
    std::vector<std::string> keys;  // two ids may look alike; an object holds the first
    const auto write = [&, before = texts.pending](const TokenLogprob& token) {
      std::string key = spelled(tokenizer, token.token, extras, before);
      if (std::ranges::find(keys, key) != keys.end()) return;
      json.key(key);
      write_logprob(json, token.*which);
      keys.push_back(std::move(key));
    };
    write(record->chosen);  // as OpenAI has it, also where it is none of the likeliest; as vLLM, before them
    for (const TokenLogprob& other : record->top) write(other);
    json.end_object();
  }
  json.end_array();
}

}  // namespace

void step_past(const Tokenizer& tokenizer, std::span<const TokenRecord> records, TokenTexts& texts) {
  for (const TokenRecord& record : records) step_past(tokenizer, record.chosen.token, texts);
}

void write_logprob(JsonWriter& json, float value) { std::isfinite(value) ? json.single(value) : json.raw("-9999.0"); }

std::string token_text(const Tokenizer& tokenizer, TokenId id) {
  std::string text;
  Utf8Mender mender;
  mender.push(tokenizer.token_bytes(id, true), text);
  mender.finish(text);
  return text;
}

void write_token_logprobs(JsonWriter& json, const Tokenizer& tokenizer, std::span<const TokenRecord> records,
                          LogprobExtras extras, TokenTexts& texts) {
  json.begin_array();
  for (const TokenRecord& record : records) {
    json.begin_object();
    write_entry(json, tokenizer, record.chosen, extras, texts.pending);
    json.key("top_logprobs").begin_array();
    for (const TokenLogprob& other : record.top) {
      json.begin_object();
      write_entry(json, tokenizer, other, extras, texts.pending);
      json.end_object();
    }
    json.end_array().end_object();
    step_past(tokenizer, record.chosen.token, texts);
  }
  json.end_array();
}

void write_chat_logprobs(JsonWriter& json, const Tokenizer& tokenizer, std::span<const TokenRecord> records,
                         LogprobExtras extras, TokenTexts& texts) {
  json.begin_object().key("content");
  write_token_logprobs(json, tokenizer, records, extras, texts);
  json.key("refusal").null().end_object();
}

void write_completion_logprobs(JsonWriter& json, const Tokenizer& tokenizer, std::span<const TokenId> prompt,
                               std::span<const TokenRecord> prompt_records, std::span<const TokenRecord> records,
                               LogprobExtras extras, TokenTexts& texts) {
  // The columns of one table; gathered first because JSON needs them one after the other.
  std::vector<TokenRow> rows;
  PromptCursor cursor(prompt_records);
  const auto add = [&](TokenId id, const TokenRecord* record) {
    rows.push_back({id, record, texts});
    step_past(tokenizer, id, texts);
  };
  for (size_t i = 0; i < prompt.size(); ++i) add(prompt[i], cursor.at(i));
  for (const TokenRecord& record : records) add(record.chosen.token, &record);

  json.begin_object().key("tokens").begin_array();
  for (const TokenRow& row : rows) json.string(spelled(tokenizer, row.id, extras, row.texts.pending));
  json.end_array().key("token_logprobs").begin_array();
  for (const TokenRow& row : rows)
    row.record == nullptr ? static_cast<void>(json.null()) : write_logprob(json, row.record->chosen.raw);
  json.end_array().key("top_logprobs");
  write_top_column(json, tokenizer, rows, &TokenLogprob::raw, extras);
  if (extras.processed) {
    // The stages worked on the answer alone.
    const size_t n_prompt = prompt.size();
    json.key("processed_logprobs").begin_array();
    for (size_t i = 0; i < rows.size(); ++i)
      i < n_prompt ? static_cast<void>(json.null()) : write_logprob(json, rows[i].record->chosen.processed);
    json.end_array().key("processed_top_logprobs");
    for (size_t i = 0; i < n_prompt; ++i) rows[i].record = nullptr;
    write_top_column(json, tokenizer, rows, &TokenLogprob::processed, extras);
  }
  json.key("text_offset").begin_array();
  for (const TokenRow& row : rows) json.integer(static_cast<int64_t>(row.texts.n_code_points));
  json.end_array().end_object();
}

void write_prompt_logprobs(JsonWriter& json, const Tokenizer& tokenizer, int32_t prompt_len,
                           std::span<const TokenRecord> records) {
  PromptCursor cursor(records);
  json.begin_array();
  for (int32_t i = 0; i < prompt_len; ++i) {
    const TokenRecord* record = cursor.at(static_cast<size_t>(i));
    if (record == nullptr) {
      json.null();
      continue;
    }
    json.begin_object();
    const auto write = [&](const TokenLogprob& token) {
      json.key(std::to_string(raw(token.token))).begin_object().key("logprob");
      write_logprob(json, token.raw);
      json.field("decoded_token", token_text(tokenizer, token.token)).end_object();
    };
    write(record->chosen);
    for (const TokenLogprob& other : record->top) {
      if (other.token != record->chosen.token) write(other);
    }
    json.end_object();
  }
  json.end_array();
}

}  // namespace ibid
