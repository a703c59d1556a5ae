// AnswerChoice: one choice of an answer as it grows, as parts that every API can write: reasoning, text, calls of
// tools, and how it ended.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engine/state/request.h"
#include "server/answer/line_rules.h"
#include "server/answer/logprobs_json.h"
#include "text/output/answer_parser.h"
#include "text/output/reasoning_budget.h"

namespace ibid {

using PartKind = AnswerPart::Kind;

struct AnswerChoice {
  std::vector<AnswerPart> parts;  // not yet written
  std::optional<AnswerParser> parser;
  std::optional<LineRules> lines;
  std::vector<TokenRecord> records;
  std::vector<float> embedding;
  bool started = false;  // an event went out
  bool finished = false;
  bool end_written = false;
  FinishReason reason = FinishReason::kNone;
  std::string stop_text;
  Error error;
  TokenId last_token = TokenId::kNone;
  int32_t n_tokens = 0;
  int32_t n_resumed = 0;                    // of these, that the request brought and that are not written
  int32_t n_reasoning = 0;                  // of all, with its markers
  float mirostat_mu = 0;                    // after the last one (Output::mirostat_mu)
  std::optional<ReasoningBlock> reasoning;  // that is being counted
  double logprob = 0;                       // of all its tokens, where they have one
  double score = 0;                         // of a search
  int32_t n_preemptions = 0;
  int32_t n_drafted = 0, n_accepted = 0;
  int32_t n_computed = 0;     // of its prompt, as last reported
  bool has_progress = false;  // which is not written yet
  bool has_begun = false;     // where its prompt began is written
  TokenTexts token_texts;     // as far as log-probabilities were written
  double last_time = 0;
  Timing timing;  // as last reported

  bool failed() const { return finished && reason == FinishReason::kError; }
  bool asks_for_tools() const;  // it ended with calls, and they are whole
  // Of all parts of the kind together.
  std::string text_of(AnswerPart::Kind kind) const;
  bool has(AnswerPart::Kind kind) const;
};

// A call of it, all parts together.
struct AnswerCall {
  int32_t number = 0;
  std::string name, id, arguments;
  bool is_whole = false;
};
std::vector<AnswerCall> calls_of(const AnswerChoice& choice);

}  // namespace ibid
