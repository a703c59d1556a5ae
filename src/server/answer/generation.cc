#include "server/answer/generation.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>

#include "server/wire/api_error.h"

namespace ibid {

namespace {

constexpr size_t kValueJson = 16;  // of a vector

// All of a prompt's records have as many candidates, but the first, which has none.
size_t prompt_top_bytes(const std::vector<TokenRecord>& records) {
  return records.back().top.size() * sizeof(TokenLogprob);
}

// The number of a call whose arguments are not whole; -1: there is none.
int32_t open_call(const AnswerChoice& choice) {
  int32_t open = -1;
  for (const AnswerPart& part : choice.parts) {
    if (part.kind == PartKind::kCall) open = part.ends ? -1 : part.call;
  }
  return open;
}

}  // namespace

Generation::Generation(GenerationInfo info, const Tokenizer& tokenizer, Metrics& metrics)
    : info_(std::move(info)), tokenizer_(tokenizer), metrics_(metrics), printer_(info_.api->make_printer()) {
  choices_.resize(info_.requests.size() * static_cast<size_t>(info_.n));
  prompts_.resize(info_.requests.size());
  if (info_.reasoning) {
    for (Choice& choice : choices_) choice.reasoning.emplace(*info_.reasoning);
  }
  if (info_.asked.n_indent > 0 || info_.asked.t_max_predict_ms > 0) {
    for (Choice& choice : choices_) choice.lines.emplace(info_.asked.n_indent, info_.asked.t_max_predict_ms / 1000.0);
  }
  if (!info_.parser) return;
  for (Choice& choice : choices_) choice.parser.emplace(*info_.parser);
}

void Generation::take(std::vector<Output> outputs) {
  const auto n = static_cast<size_t>(info_.n);
  for (Output& output : outputs) {
    const auto found = std::find(info_.requests.begin(), info_.requests.end(), output.request);
    if (found == info_.requests.end() || output.choice < 0 || output.choice >= info_.n) continue;
    const auto index = static_cast<size_t>(found - info_.requests.begin());
    Choice& choice = choices_[index * n + static_cast<size_t>(output.choice)];
    if (!choice.finished) take(output, prompts_[index], choice);
  }
  if (info_.asked.n < info_.n && finished() && !failure()) keep_likeliest();
}

void Generation::take(Output& output, PromptFacts& prompt, Choice& choice) {
  take_facts(output, prompt, choice);
  if (!output.tokens.empty()) take_times(output, choice);
  count_tokens(output, choice);
  if (choice.lines) keep_lines(choice, output);
  take_text(output, choice);
  if (output.finished) end(output, choice);
}

void Generation::count_tokens(const Output& output, Choice& choice) const {
  for (const TokenRecord& record : output.tokens) choice.logprob += static_cast<double>(record.chosen.raw);
  for (size_t i = 0; i < output.tokens.size() && choice.reasoning; ++i) {
    choice.reasoning->push(tokenizer_.token_bytes(output.tokens[i].chosen.token, true));
    choice.n_reasoning = choice.reasoning->is_none() ? 0 : choice.n_reasoning + 1;
    if (!choice.reasoning->may_go_on()) choice.reasoning.reset();
  }
}

void Generation::resume(Output output) {
  Choice& choice = choices_.front();
  choice.n_tokens = choice.n_resumed = static_cast<int32_t>(output.tokens.size());
  choice.last_token = output.tokens.back().chosen.token;
  count_tokens(output, choice);
  step_past(tokenizer_, output.tokens, choice.token_texts);
  const bool was_finished = output.finished;
  if (choice.lines) keep_lines(choice, output);
  take_text(output, choice);
  if (output.finished && !was_finished) end(output, choice);
  choice.records.clear();
  const bool adds_up = info_.asked.stream && info_.api->streams_call_pieces;
  std::erase_if(choice.parts, [&, open = open_call(choice)](const AnswerPart& part) {
    return adds_up || part.kind != PartKind::kCall || part.call != open;
  });
}

// What is known of the prompt and of the choice as a whole.
void Generation::take_facts(Output& output, PromptFacts& prompt, Choice& choice) {
  if (!output.prompt.empty()) {
    prompt.records = std::move(output.prompt);
    if (!info_.asked.stream)
      gathered_ += prompt.records.size() * (sizeof(TokenRecord) + prompt_top_bytes(prompt.records));
  }
  if (const int32_t more = output.usage.cached_tokens - prompt.usage.cached_tokens; more > 0) {
    prompt.usage.cached_tokens += more;
    metrics_.add_tokens(0, more, 0);
  }
  // A choice that ends without a token (cancelled while it waited) has no time of a first one.
  const bool has_token = output.timing.first_token > 0, is_first = prompt.timing.first_token <= 0;
  if (!prompt.seen || (has_token && (is_first || output.timing.first_token < prompt.timing.first_token)))
    prompt.timing = output.timing;
  prompt.seen = true;
  if (output.n_computed > choice.n_computed) choice.n_computed = output.n_computed, choice.has_progress = true;
  choice.n_preemptions = output.timing.n_preemptions;
  choice.n_drafted = output.usage.drafted_tokens;
  choice.n_accepted = output.usage.accepted_tokens;
  if (!output.tokens.empty()) choice.mirostat_mu = output.mirostat_mu;
  choice.timing = output.timing;
}

// Of an output with tokens: their number, and the time between them.
void Generation::take_times(const Output& output, Choice& choice) {
  const auto n_new = static_cast<int32_t>(output.tokens.size());
  if (choice.n_tokens > choice.n_resumed) {
    const double gap = whole_microseconds((output.timing.last_token - choice.last_time) / n_new);
    metrics_.add_itl(gap, n_new);
    itl_.itl_sum += gap * n_new;
    itl_.itl_count += n_new;
    itl_.itl_buckets[bucket_of(kItlBounds, gap)] += n_new;
  }
  choice.last_time = output.timing.last_token;
  choice.last_token = output.tokens.back().chosen.token;
  choice.n_tokens += n_new;
  metrics_.add_tokens(0, 0, n_new);
}

void Generation::take_text(Output& output, Choice& choice) {
  gathered_ += output.text.size();
  if (choice.parser) {
    choice.parser->push(output.text, choice.parts);
    leave_out(choice);
  } else if (!output.text.empty()) {
    if (choice.parts.empty()) choice.parts.emplace_back();
    choice.parts.back().text += output.text;
  }
  if (!info_.keeps_records()) return;
  for (TokenRecord& record : output.tokens) {
    gathered_ += sizeof record + record.top.size() * sizeof(TokenLogprob);
    choice.records.push_back(std::move(record));
  }
}

void Generation::end(Output& output, Choice& choice) {
  // Of one that has failed what is held back does not go out: where it is resumed, it is sent there.
  if (choice.parser && output.reason != FinishReason::kError) {
    const bool is_own_end = output.reason == FinishReason::kEos || output.reason == FinishReason::kStop ||
                            output.reason == FinishReason::kGrammar || output.reason == FinishReason::kTool;
    choice.parser->finish(choice.parts, is_own_end);
    leave_out(choice);
    // It was over when it was resumed: all of it is sent.
    if (choice.n_resumed > 0 && choice.n_tokens == choice.n_resumed) choice.parts.clear();
  }
  choice.finished = true;
  choice.reason = output.reason;
  if (choice.reason == FinishReason::kError) choice.error = output.error();
  if (output.ending) {
    choice.stop_text = std::move(output.ending->stop_text);
    choice.score = output.ending->score;
    choice.embedding = std::move(output.ending->embedding);
  }
  gathered_ += choice.embedding.size() * kValueJson;
  metrics_.add_finish(finish_reason_name(choice.reason));
  ++n_finished_;
}

// The time is that of the engine's clock, from the first token to the last one of the output.
void Generation::keep_lines(Choice& choice, Output& output) {
  std::string kept_text;
  const bool ends = choice.lines->push(output.text, output.timing.last_token - output.timing.first_token, kept_text);
  if (!ends && output.finished) choice.lines->finish(kept_text);
  output.text = std::move(kept_text);
  if (!ends) return;
  output.finished = true;
  output.reason = FinishReason::kLength;
  output.ending = nullptr;
  ends_early_ = true;
}

// best_of: of each prompt's choices those of the highest log-probability a token, best first.
void Generation::keep_likeliest() {
  const auto n = static_cast<size_t>(info_.n), n_asked = static_cast<size_t>(info_.asked.n);
  const auto likely = [](const Choice& c) { return c.n_tokens > 0 ? c.logprob / c.n_tokens : 0; };
  std::vector<Choice> kept;
  kept.reserve(prompts_.size() * n_asked);
  std::vector<size_t> order(n);
  for (size_t begin = 0; begin < choices_.size(); begin += n) {
    std::iota(order.begin(), order.end(), begin);
    std::ranges::stable_sort(order, std::greater<>(), [&](size_t i) { return likely(choices_[i]); });
    for (size_t i = 0; i < n_asked; ++i) kept.push_back(std::move(choices_[order[i]]));
    for (size_t i = n_asked; i < n; ++i) n_dropped_tokens_ += choices_[order[i]].n_tokens;
  }
  choices_.swap(kept);
  n_finished_ = choices_.size();
  info_.n = info_.asked.n;
}

// What the request does not want to see.
void Generation::leave_out(Choice& choice) const {
  if (info_.asked.reports_reasoning && info_.asked.parallel_calls) return;
  std::erase_if(choice.parts, [&](const AnswerPart& part) {
    return part.kind == AnswerPart::Kind::kReasoning ? !info_.asked.reports_reasoning
                                                     : part.call > 0 && !info_.asked.parallel_calls;
  });
}

void Generation::write_events(std::string& out) {
  if (done_written_) return;
  for (size_t i = 0; i < choices_.size(); ++i) printer_->write_events(*this, choices_[i], i, out);
  gathered_ = 0;
  if (!finished()) return;
  printer_->write_end(*this, out);
  done_written_ = true;
}

ApiError Generation::error_of(const Choice& choice) const {
  ApiError error = ApiError::of_generation(choice.error);
  if (resume_.empty()) return error;
  error.code = "shutting_down";
  error.resume = resume_;
  error.seed = info_.seed;
  return error;
}

std::optional<ApiError> Generation::failure() const {
  for (const Choice& choice : choices_) {
    if (choice.reason == FinishReason::kError) return error_of(choice);
    if (choice.reason == FinishReason::kCancelled)
      return ApiError{503, "The server ended this request because it is shutting down.", "", "shutting_down", 5};
  }
  return std::nullopt;
}

WebResponse Generation::response() {
  if (const std::optional<ApiError> failed = failure()) {
    WebResponse response = error_response(*failed);
    restyle_error(response, *info_.api, info_.id);
    return response;
  }
  WebResponse response;
  if (goes_in_parts()) return response;
  while (!done_written_) write_part(response.body);
  return response;
}

// A choice at a time.
void Generation::write_part(std::string& out) {
  if (n_choices_written_ == 0) printer_->write_begin(*this, out);
  if (n_choices_written_ > 0) out += printer_->between_choices();
  Choice& choice = choices_[n_choices_written_];
  printer_->write_choice(*this, choice, n_choices_written_, out);
  choice.parts = {};
  choice.records = {};
  choice.embedding = {};
  if (++n_choices_written_ < choices_.size()) return;
  printer_->write_rest(*this, out);
  done_written_ = true;
}

// Counted generously: a token's text as JSON, its ids, and for each log-probability the record of it and its JSON
// (with the token's text and bytes), which a string that grows by doubling may hold twice.
int64_t Generation::most_bytes(const GenerationInfo& info, std::span<const Request> requests, int32_t context_len,
                               int64_t max_backlog) {
  using Holds = ApiDialect::Holds;
  const ApiDialect& api = *info.api;
  const bool holds_all = api.holds == Holds::kAll || (info.parser && api.holds == Holds::kParsed);
  const int64_t text_bytes = api.token_bytes > 0 ? api.token_bytes : info.parser ? 32 : 16;
  const int64_t n_copies = api.logprob_copies;
  const bool streams = info.asked.stream && !holds_all;
  constexpr int64_t kRecord = sizeof(TokenRecord), kTop = sizeof(TokenLogprob) + 4;
  constexpr int64_t kRecordJson = 256, kTopJson = 192;
  const bool keeps_records = info.keeps_records();
  int64_t sum = 0, largest_json = 0;
  for (const Request& r : requests) {
    const auto n_prompt = static_cast<int64_t>(r.prompt.size());
    const int64_t n_left = std::max<int64_t>(0, context_len - n_prompt);
    const int64_t n_tokens = r.max_tokens < 0 ? n_left : std::min<int64_t>(r.max_tokens, n_left);
    const int64_t n_top = keeps_records ? std::max(0, r.sampling.logprobs) : 0;
    const int64_t of_record = keeps_records ? kRecordJson + n_top * kTopJson : 0;
    const int64_t held =
        n_tokens * (text_bytes + (keeps_records ? kRecord + n_top * kTop : 0) + (n_copies / 2) * of_record);
    if (r.pooling != Pooling::kNone) {
      constexpr int64_t kValue = sizeof(float) + kValueJson;
      // Each token's are gathered by the engine first.
      const int64_t n_vectors = r.pooling == Pooling::kEach ? n_prompt : 1;
      const int64_t n_values = n_vectors * info.embedding_len;
      sum += n_values * (kValue * std::max<int64_t>(1, std::ssize(info.embedding.types)) +
                         (n_vectors > 1 ? int64_t{sizeof(float)} : 0));
      largest_json = std::max(largest_json, n_values * kValue);
      continue;
    }
    const int64_t json = n_tokens * (text_bytes + n_copies * of_record);
    sum += info.n * (streams ? std::min(held, max_backlog) : held);
    largest_json = std::max(largest_json, streams ? std::min(json, 4 * max_backlog) : json);
    if (info.asked.return_token_ids) sum += 3 * text_bytes * n_prompt;  // its ids, and their JSON
    if (r.prompt_logprobs >= 0) {
      sum += n_prompt * (kRecord + r.prompt_logprobs * kTop);
      largest_json = std::max(largest_json, json + n_prompt * (kRecordJson + r.prompt_logprobs * kTopJson));
    }
  }
  sum += 7 * std::ssize(info.rendered);
  for (const std::string& text : info.embedding.texts) sum += 7 * std::ssize(text);
  for (const std::string& document : info.rank.documents) sum += 7 * std::ssize(document);  // itself, and as JSON
  return sum + 2 * largest_json;
}

}  // namespace ibid
