#include "server/generation.h"

#include <algorithm>
#include <utility>

#include "base/json_writer.h"
#include "server/api_error.h"
#include "server/logprobs_json.h"
#include "server/trace_json.h"
#include "text/tokenizer/tokenizer.h"

namespace ibid {

namespace {

// All of a prompt's records have as many candidates, but the first, which has none.
size_t prompt_top_bytes(const std::vector<TokenRecord>& records) {
  return records.back().top.size() * sizeof(TokenLogprob);
}

}  // namespace

Generation::Generation(GenerationInfo info, const Tokenizer& tokenizer, Metrics& metrics)
    : info_(std::move(info)), tokenizer_(tokenizer), metrics_(metrics) {
  choices_.resize(info_.requests.size() * static_cast<size_t>(info_.n));
  prompts_.resize(info_.requests.size());
}

void Generation::take(std::vector<Output> outputs) {
  for (Output& output : outputs) {
    const auto found = std::find(info_.requests.begin(), info_.requests.end(), output.request);
    if (found == info_.requests.end() || output.choice < 0 || output.choice >= info_.n) continue;
    const auto prompt_index = static_cast<size_t>(found - info_.requests.begin());
    PromptFacts& prompt = prompts_[prompt_index];
    Choice& choice = choices_[prompt_index * static_cast<size_t>(info_.n) + static_cast<size_t>(output.choice)];
    if (choice.finished) continue;

    if (!output.prompt.empty()) {
      prompt.records = std::move(output.prompt);
      if (!info_.stream) gathered_ += prompt.records.size() * (sizeof(TokenRecord) + prompt_top_bytes(prompt.records));
    }
    if (const int32_t more = output.usage.cached_tokens - prompt.usage.cached_tokens; more > 0) {
      prompt.usage.cached_tokens += more;
      metrics_.add_tokens(0, more, 0);
    }
    // A choice that ends without a token (cancelled while it waited) has no time of a first one.
    const bool has_token = output.timing.first_token > 0, is_first = prompt.timing.first_token <= 0;
    if (!prompt.seen || (has_token && (is_first || output.timing.first_token < prompt.timing.first_token)))
      prompt.timing = output.timing;
    choice.n_preemptions = output.timing.n_preemptions;
    choice.n_drafted = output.usage.drafted_tokens;
    choice.n_accepted = output.usage.accepted_tokens;
    choice.timing = output.timing;
    prompt.seen = true;

    const auto n_new = static_cast<int32_t>(output.tokens.size());
    if (n_new > 0) {
      if (choice.n_tokens > 0) {
        const double gap = whole_microseconds((output.timing.last_token - choice.last_time) / n_new);
        metrics_.add_gap(gap, n_new);
        gaps_.itl_sum += gap * n_new;
        gaps_.itl_count += n_new;
        gaps_.itl_buckets[bucket_of(kGapBounds, gap)] += n_new;
      }
      choice.last_time = output.timing.last_token;
      choice.last_token = output.tokens.back().chosen.token;
      choice.n_tokens += n_new;
      metrics_.add_tokens(0, 0, n_new);
    }
    gathered_ += output.text.size();
    choice.text += output.text;
    if (info_.keeps_records()) {
      for (TokenRecord& record : output.tokens) {
        gathered_ += sizeof record + record.top.size() * sizeof(TokenLogprob);
        choice.records.push_back(std::move(record));
      }
    }
    if (output.finished) {
      choice.finished = true;
      choice.reason = output.reason;
      choice.stop_text = std::move(output.stop_text);
      choice.error = std::move(output.error);
      metrics_.add_finish(finish_reason_name(choice.reason));
      ++n_finished_;
    }
  }
}

void Generation::write_head(JsonWriter& json, const char* object) const {
  json.field("id", info_.id).field("object", object).field("created", info_.created).field("model", info_.model);
  json.field("system_fingerprint", info_.fingerprint).key("seed").large_integer(info_.seed);
}

void Generation::write_usage(JsonWriter& json) const {
  const int64_t prompt = prompt_tokens(), completion = completion_tokens();
  json.begin_object().field("prompt_tokens", prompt).field("completion_tokens", completion);
  json.field("total_tokens", prompt + completion);
  json.key("prompt_tokens_details").begin_object().field("cached_tokens", int64_t{cached_tokens()}).end_object();
  // How many there were depends on what else ran; so answers tell of it to those alone who ask.
  if (info_.tells_drafts) {
    json.key("completion_tokens_details").begin_object();
    json.field("accepted_prediction_tokens", int64_t{accepted_tokens()});
    json.field("rejected_prediction_tokens", int64_t{drafted_tokens() - accepted_tokens()}).end_object();
  }
  json.end_object();
}

void Generation::write_extras(JsonWriter& json, size_t index, const Choice& choice) const {
  if (info_.return_token_ids) {
    json.key("token_ids").begin_array();
    for (const TokenRecord& record : choice.records) json.integer(raw(record.chosen.token));
    json.end_array();
  }
  if (info_.trace) {
    json.key("trace");
    write_trace(json, choice.records, info_.seed + index % static_cast<size_t>(info_.n), *info_.trace);
  }
  if (info_.endpoint == Endpoint::kCompletions) write_prompt(json, index, choice);
}

// As vLLM has them: in the first choice of each prompt of completions, beside the choices of a chat.
void Generation::write_prompt(JsonWriter& json, size_t index, const Choice& choice) const {
  if (!info_.prompt_logprobs || choice.started || index % static_cast<size_t>(info_.n) != 0) return;
  json.key("prompt_logprobs");
  write_prompt_logprobs(json, tokenizer_, info_.prompt_lens[index / static_cast<size_t>(info_.n)],
                        prompt_of(index).records);
}

void Generation::write_choice(JsonWriter& json, size_t index, Part part, const Choice& choice,
                              size_t& n_code_points) const {
  const bool chat = info_.endpoint == Endpoint::kChat, whole = part == Part::kWhole;
  const size_t prompt = index / static_cast<size_t>(info_.n);
  json.begin_object().field("index", static_cast<int64_t>(index));
  if (chat) {
    json.key(whole ? "message" : "delta").begin_object();
    if (whole || !choice.started) json.field("role", "assistant");
    if (part != Part::kEnd) json.field("content", choice.text);
    if (whole) json.key("refusal").null();
    json.end_object();
  } else {
    const bool echo = info_.echo && !choice.started;
    json.field("text", echo ? info_.prompt_texts[prompt] + choice.text : choice.text);
  }
  const LogprobExtras extras{.processed = info_.processed_logprobs, .ids = info_.return_token_ids};
  json.key("logprobs");
  if (!info_.want_logprobs || (part == Part::kEnd && choice.records.empty())) {
    json.null();
  } else if (chat) {
    write_chat_logprobs(json, tokenizer_, choice.records, extras);
  } else {
    std::span<const TokenId> ids;
    if (info_.echo && !choice.started) ids = info_.prompt_ids[prompt];
    write_completion_logprobs(json, tokenizer_, ids, prompts_[prompt].records, choice.records, extras, n_code_points);
  }
  json.key("finish_reason");
  const bool ended = part != Part::kPiece;
  ended ? json.string(openai_finish_reason(choice.reason)) : json.null();
  if (ended) {
    json.key("stop_reason");
    if (choice.reason == FinishReason::kStop && !choice.stop_text.empty()) {
      json.string(choice.stop_text);
    } else if (choice.reason == FinishReason::kStop && choice.last_token != TokenId::kNone) {
      json.integer(raw(choice.last_token));
    } else {
      json.null();
    }
  }
  write_extras(json, index, choice);
  json.end_object();
}

void Generation::write_event(size_t index, Part part, std::string& out) {
  Choice& choice = choices_[index];
  out += "data: ";
  JsonWriter json(out);
  json.begin_object();
  write_head(json, info_.endpoint == Endpoint::kChat ? "chat.completion.chunk" : "text_completion");
  if (info_.trace && !std::exchange(trace_begun_, true)) json.key("trace_header").raw(info_.trace->header);
  json.key("choices").begin_array();
  write_choice(json, index, part, choice, choice.n_code_points);
  json.end_array();
  if (info_.endpoint == Endpoint::kChat) write_prompt(json, index, choice);
  if (info_.continuous_usage) {
    json.key("usage");
    write_usage(json);
  } else if (info_.include_usage) {
    json.key("usage").null();
  }
  json.end_object();
  out += "\n\n";
  choice.started = true;
  choice.text.clear();
  choice.records.clear();
}

// As OpenAI does: the text first, then an event with the reason and without text. A stream whose choice has no text
// begins all the same: with its role, or with the prompt that it echoes.
void Generation::write_events_of(size_t index, std::string& out) {
  Choice& choice = choices_[index];
  const bool failed = choice.finished && choice.reason == FinishReason::kError;
  const bool must_begin = choice.finished && !choice.started && (info_.endpoint == Endpoint::kChat || info_.echo);
  // Text that may be part of a stop is held back by the engine; its tokens' records go with the next text.
  if (!choice.text.empty() || (must_begin && !failed)) write_event(index, Part::kPiece, out);
  if (!choice.finished || std::exchange(choice.end_written, true)) return;
  if (failed) {
    out += "data: " + error_json(ApiError::of_generation(choice.error)) + "\n\n";
  } else {
    write_event(index, Part::kEnd, out);
  }
}

void Generation::write_events(std::string& out) {
  if (done_written_) return;
  for (size_t i = 0; i < choices_.size(); ++i) write_events_of(i, out);
  gathered_ = 0;
  if (!finished()) return;
  if (info_.include_usage || info_.ledger) {
    out += "data: ";
    JsonWriter json(out);
    json.begin_object();
    write_head(json, info_.endpoint == Endpoint::kChat ? "chat.completion.chunk" : "text_completion");
    json.key("choices").begin_array().end_array();
    if (info_.include_usage) {
      json.key("usage");
      write_usage(json);
    }
    if (info_.ledger) write_ledger(json);
    json.end_object();
    out += "\n\n";
  }
  out += "data: [DONE]\n\n";
  done_written_ = true;
}

std::optional<WebResponse> Generation::failure() const {
  for (const Choice& choice : choices_) {
    if (choice.reason == FinishReason::kError) return error_response(ApiError::of_generation(choice.error));
    if (choice.reason == FinishReason::kCancelled) {
      return error_response(
          {503, "The server ended this request because it is shutting down.", "", "shutting_down", 5});
    }
  }
  return std::nullopt;
}

void Generation::write_begin(JsonWriter& json) const {
  json.begin_object();
  write_head(json, info_.endpoint == Endpoint::kChat ? "chat.completion" : "text_completion");
  if (info_.trace) json.key("trace_header").raw(info_.trace->header);
  json.key("choices").begin_array();
}

void Generation::write_rest(JsonWriter& json) const {
  json.end_array();
  if (info_.endpoint == Endpoint::kChat) write_prompt(json, 0, choices_[0]);
  json.key("usage");
  write_usage(json);
  if (info_.ledger) write_ledger(json);
  json.end_object();
}

WebResponse Generation::response() const {
  if (std::optional<WebResponse> failed = failure()) return *std::move(failed);
  WebResponse response;
  if (goes_in_parts()) return response;
  JsonWriter json(response.body);
  write_begin(json);
  for (size_t i = 0; i < choices_.size(); ++i) {
    size_t n_code_points = 0;
    write_choice(json, i, Part::kWhole, choices_[i], n_code_points);
  }
  write_rest(json);
  return response;
}

// A choice at a time.
void Generation::write_part(std::string& out) {
  JsonWriter json(out);  // knows no earlier part: the comma between two choices is ours
  if (n_choices_written_ == 0) write_begin(json);
  if (n_choices_written_ > 0) out += ',';
  Choice& choice = choices_[n_choices_written_];
  size_t n_code_points = 0;
  write_choice(json, n_choices_written_, Part::kWhole, choice, n_code_points);
  choice.text = std::string();
  choice.records = std::vector<TokenRecord>();
  if (++n_choices_written_ < choices_.size()) return;
  write_rest(json);
  done_written_ = true;
}

// Counted generously: a token's text as JSON, its ids, and for each log-probability the record of it and its JSON
// (with the token's text and bytes), which a string that grows by doubling may hold twice.
int64_t Generation::most_bytes(const GenerationInfo& info, std::span<const Request> requests, int32_t context_len,
                               int64_t max_backlog) {
  constexpr int64_t kText = 16, kRecord = sizeof(TokenRecord), kTop = sizeof(TokenLogprob) + 4;
  constexpr int64_t kRecordJson = 256, kTopJson = 192;
  const bool keeps_records = info.keeps_records();
  int64_t sum = 0, largest_json = 0;
  for (const Request& r : requests) {
    const auto n_prompt = static_cast<int64_t>(r.prompt.size());
    const int64_t n_left = std::max<int64_t>(0, context_len - n_prompt);
    const int64_t n_tokens = r.max_tokens < 0 ? n_left : std::min<int64_t>(r.max_tokens, n_left);
    const int64_t n_top = keeps_records ? std::max(0, r.sampling.logprobs) : 0;
    const int64_t held = n_tokens * (kText + (keeps_records ? kRecord + n_top * kTop : 0));
    const int64_t json = n_tokens * (kText + (keeps_records ? kRecordJson + n_top * kTopJson : 0));
    sum += info.n * (info.stream ? std::min(held, max_backlog) : held);
    largest_json = std::max(largest_json, info.stream ? std::min(json, 4 * max_backlog) : json);
    if (r.prompt_logprobs >= 0) {
      sum += n_prompt * (kRecord + r.prompt_logprobs * kTop);
      largest_json = std::max(largest_json, json + n_prompt * (kRecordJson + r.prompt_logprobs * kTopJson));
    }
  }
  return sum + 2 * largest_json;
}

}  // namespace ibid
