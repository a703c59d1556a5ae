// AnswerPrinter: how an API writes an answer, streamed or whole. One per generation, which hands it the parts of its
// choices; belongs to the generation's strand.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "server/answer_choice.h"
#include "server/api_request.h"
#include "server/web_message.h"

namespace ibid {

class Generation;

class AnswerPrinter {
 public:
  virtual ~AnswerPrinter() = default;
  // Of a stream: the events that are due of a choice, whose parts and records are then taken; and, when all choices
  // have ended, the last events.
  virtual void write_events(const Generation& g, AnswerChoice& choice, size_t index, std::string& out) = 0;
  virtual void write_end(const Generation& g, std::string& out) = 0;
  // The whole answer: what comes before its choices, each of them, what comes after the last.
  virtual void write_begin(const Generation&, std::string&) {}
  virtual void write_choice(const Generation& g, const AnswerChoice& choice, size_t index, std::string& out) = 0;
  virtual std::string_view between_choices() const { return ","; }
  virtual void write_rest(const Generation&, std::string&) {}
  virtual std::string_view stream_type() const { return "text/event-stream; charset=utf-8"; }
  // What may stand between two events and says nothing; empty: nothing may.
  virtual std::string_view still_here() const { return ": still here\n\n"; }
};

std::unique_ptr<AnswerPrinter> make_openai_printer(ApiStyle style);  // chat and completions
std::unique_ptr<AnswerPrinter> make_messages_printer();
std::unique_ptr<AnswerPrinter> make_responses_printer();
std::unique_ptr<AnswerPrinter> make_ollama_printer(ApiStyle style);  // chat and generate
std::unique_ptr<AnswerPrinter> make_llama_printer();
std::unique_ptr<AnswerPrinter> make_embedding_printer(ApiStyle style);  // all that make vectors
std::unique_ptr<AnswerPrinter> make_rank_printer(ApiStyle style);

std::unique_ptr<AnswerPrinter> make_printer(ApiStyle style);
// What the ids of its answers begin with.
const char* id_prefix_of(ApiStyle style);
// A refusal as the API has it; `request_id` is told where the API tells it in the body.
void restyle_error(WebResponse& response, ApiStyle style, std::string_view request_id);

}  // namespace ibid
