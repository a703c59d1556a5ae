// AnswerPrinter: how an API writes an answer, streamed or whole. One per generation, which hands it the parts of its
// choices; belongs to the generation's strand.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "server/answer/answer_choice.h"

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
  // A comment that may stand between two events as a sign of life; empty: none may.
  virtual std::string_view still_here() const { return ": still here\n\n"; }
};

// One for each form of answers; api_dialects.h has which API's are of which.
enum class OpenAiForm : uint8_t { kChat, kChatBatch, kCompletions };
std::unique_ptr<AnswerPrinter> make_openai_printer(OpenAiForm form);
std::unique_ptr<AnswerPrinter> make_messages_printer();
std::unique_ptr<AnswerPrinter> make_responses_printer();
std::unique_ptr<AnswerPrinter> make_ollama_printer(bool generate);
std::unique_ptr<AnswerPrinter> make_llama_printer();
std::unique_ptr<AnswerPrinter> make_embeddings_printer();
std::unique_ptr<AnswerPrinter> make_pooling_printer();
std::unique_ptr<AnswerPrinter> make_ollama_embed_printer();
std::unique_ptr<AnswerPrinter> make_ollama_embeddings_printer();
std::unique_ptr<AnswerPrinter> make_llama_embedding_printer();
std::unique_ptr<AnswerPrinter> make_cohere_embed_printer();
// `reranks`: best first.
std::unique_ptr<AnswerPrinter> make_rank_printer(bool reranks);

}  // namespace ibid
