// Generation: one HTTP request that the engine answers over time. It gathers outputs as the parts of its choices
// (reasoning, text, calls of tools, how they ended), which the printer of the request's API writes as events or as one
// answer. What is gathered while a client does not read is merged: the events of a choice then hold all that came
// meanwhile. Belongs to its connection's strand; not for two threads at once.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/state/request.h"
#include "server/answer/answer_choice.h"
#include "server/answer/answer_printer.h"
#include "server/answer/api_dialects.h"
#include "server/dialects/dialects.h"
#include "server/fields/api_request.h"
#include "server/observe/metrics.h"
#include "server/observe/otlp.h"
#include "server/wire/web_message.h"
#include "text/output/reasoning_budget.h"

namespace ibid {

class JsonWriter;
class Tokenizer;
struct ApiError;
struct TraceFacts;

// What the answer has to repeat or to know of the request.
struct GenerationInfo {
  const ApiDialect* api = &dialect_of(ApiStyle::kChat);
  AnswerFields asked;
  std::string id;  // as the API spells it
  std::string model;
  std::string fingerprint;
  int64_t created = 0;
  uint64_t seed = 0;      // of choice 0 of each prompt
  int32_t n = 1;          // choices of each prompt: those that the engine makes, at last asked.n of them
  bool searches = false;  // each choice has a score
  bool uses_mirostat = false;
  bool processed_logprobs = false;                    // log-probabilities are those after the processors
  std::string rendered;                               // the prompt, with asked.verbose
  std::shared_ptr<const ApiError> refusal = nullptr;  // kResponses: why it fails, known before it began
  LlamaFields llama;
  EmbeddingFields embedding;
  RankFields rank;                               // without its pairs
  int32_t embedding_len = 0;                     // values of a vector
  std::vector<std::string> not_held;             // of what the answer must be
  std::string settings;                          // kLlama: what was asked, as JSON
  std::vector<CallForm> call_forms;              // kResponses: of calls that are not written as plain functions
  std::shared_ptr<const Json> repeated;          // kResponses: the fields that the answer repeats
  std::shared_ptr<StoredResponse> stored;        // kResponses: to be filled with it
  StoredResponses* keeper = nullptr;             // where that is kept; null: nowhere
  std::optional<AnswerParser::Options> parser;   // none: an answer is text
  std::optional<ReasoningMarkers> reasoning;     // none: no tokens of it are counted
  std::shared_ptr<const TraceFacts> trace;       // null: no trace
  std::vector<int32_t> prompt_lens;              // tokens of each prompt
  std::vector<std::string> prompt_texts;         // with echo
  std::vector<std::vector<TokenId>> prompt_ids;  // with echo and logprobs, or return_token_ids
  std::vector<RequestId> requests;               // one per prompt
  double arrived = 0;                            // of the HTTP request, on the engine's clock
  double submitted = 0;                          // when it was handed to the engine
  const Clock* clock = nullptr;                  // the engine's; with `ledger`

  bool has_prompt_logprobs() const { return asked.prompt_logprobs >= 0; }
  // Whether the answer contains more of its tokens than their text.
  bool keeps_records() const { return asked.want_logprobs || trace != nullptr || asked.return_token_ids; }
};

class Generation {
 public:
  using Choice = AnswerChoice;
  struct PromptFacts {
    std::vector<TokenRecord> records;
    Usage usage;
    Timing timing;
    bool seen = false;
  };

  Generation(GenerationInfo info, const Tokenizer& tokenizer, Metrics& metrics);

  // First of all, of a request with one choice: the output of the tokens with which its answer is resumed. They count
  // as its own and are not written; but a call that is open after them is written whole, with what it has so far, where
  // the API's stream does not go on with calls by their number.
  void resume(Output output);
  void take(std::vector<Output> outputs);
  // A JSON object: what resumes the answer elsewhere, stated by the error with which it ends (ApiError::resume).
  void set_resume(std::string resume) { resume_ = std::move(resume); }
  // Of a choice that has failed.
  ApiError error_of(const Choice& choice) const;
  // Appends the events that are due.
  void write_events(std::string& out);
  // The whole answer, once finished().
  WebResponse response();
  // An answer that is too long to be written at once goes out in parts: response() is its head without a body then, and
  // each call appends a part and lets go of what it was made of, until done().
  bool goes_in_parts() const { return finished() && !failure() && gathered_ > kAtOnce; }
  std::string_view stream_type() const { return printer_->stream_type(); }
  std::string_view still_here() const { return printer_->still_here(); }
  void write_part(std::string& out);
  // What it may come to hold at most, its JSON on the way out included. `max_backlog`: of a stream whose client does
  // not read.
  static int64_t most_bytes(const GenerationInfo& info, std::span<const Request> requests, int32_t context_len,
                            int64_t max_backlog);

  bool finished() const { return n_finished_ == choices_.size(); }
  size_t n_finished() const { return n_finished_; }
  bool has_failed() const { return failure().has_value(); }
  bool ends_early() const { return ends_early_; }      // a choice, which the engine goes on with
  bool done() const { return done_written_; }          // the last event is written
  size_t gathered_bytes() const { return gathered_; }  // not yet written
  const GenerationInfo& info() const { return info_; }
  const Tokenizer& tokenizer() const { return tokenizer_; }
  const std::vector<Choice>& choices() const { return choices_; }
  const PromptFacts& prompt_of(size_t index) const { return prompts_[index / static_cast<size_t>(info_.n)]; }
  // Of a call by its number: the model's own, or one that is made up.
  std::string call_id(size_t index, int32_t call, const std::string& own) const;
  RequestTimes times(double now) const;
  // Where the time until `now` went: that of the choice which the engine was with longest. Adds up to the whole.
  std::array<double, kPhaseNames.size()> phases(double now) const;
  // One after the other, of the choice that had its first token first.
  std::vector<SpanPhase> span_phases(double now) const;
  int32_t completion_tokens() const;
  int32_t resumed_tokens() const;  // of these, that the request brought
  int32_t reasoning_tokens() const;
  int32_t cached_tokens() const;
  int32_t prompt_tokens() const;
  int32_t drafted_tokens() const;
  int32_t accepted_tokens() const;  // of these
  int32_t n_preemptions() const;
  void write_ledger(JsonWriter& json) const;
  void write_timings(JsonWriter& json) const;  // in llama.cpp's form
  // How much of a choice's prompt is computed, in llama.cpp's form.
  struct Progress {
    int64_t total = 0, cached = 0, processed = 0;
    double time = 0;  // seconds since it was handed to the engine
    void write(JsonWriter& json) const;
  };
  // What is due of it; before the first step's, what the cache had.
  std::vector<Progress> take_progress(Choice& choice, size_t index) const;
  const char* finish_word() const;  // of the first choice, or of one that failed
  // How many choices have ended by each reason, those that occur.
  std::vector<std::pair<const char*, int32_t>> finishes() const;

 private:
  static constexpr size_t kAtOnce = 256 << 10;  // gathered bytes

  std::optional<ApiError> failure() const;
  void take(Output& output, PromptFacts& prompt, Choice& choice);
  void take_facts(Output& output, PromptFacts& prompt, Choice& choice);
  void take_times(const Output& output, Choice& choice);
  void count_tokens(const Output& output, Choice& choice) const;
  void take_text(Output& output, Choice& choice);
  void end(Output& output, Choice& choice);
  void leave_out(Choice& choice) const;
  void keep_lines(Choice& choice, Output& output);
  void keep_likeliest();
  int32_t sum_of(int32_t Choice::*count) const;  // over all choices

  GenerationInfo info_;
  const Tokenizer& tokenizer_;
  Metrics& metrics_;
  std::vector<Choice> choices_;  // prompt 0's, then prompt 1's, ...
  std::vector<PromptFacts> prompts_;
  size_t n_finished_ = 0;
  int32_t n_dropped_tokens_ = 0;  // of choices that are not sent
  size_t gathered_ = 0;
  std::string resume_;
  bool ends_early_ = false;
  bool done_written_ = false;
  size_t n_choices_written_ = 0;  // of an answer in parts
  std::unique_ptr<AnswerPrinter> printer_;
  RequestTimes itl_;  // its itl_ members
};

}  // namespace ibid
