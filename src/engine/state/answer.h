// Answer: what one choice sends to its client, token by token. Turns drawn tokens into text, finds stops, and keeps
// what has not been sent yet. Independent of scheduling.
//
// What ends an answer, in this order: an end-of-generation id (unless ignore_eos), a stop id, a stop string. Before
// min_tokens nothing does, and text passes the stop strings unread. If the request specifies how its answer is marked
// up, stop strings are searched in the text alone, not in reasoning and calls.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>

#include "engine/state/request.h"
#include "text/output/answer_stops.h"
#include "text/output/detokenizer.h"

namespace ibid {

class Answer {
 public:
  // `tokenizer` may be null: then there is no text. `end_of_generation` outlives the answer.
  Answer(std::shared_ptr<const Request> request, int32_t choice, std::shared_ptr<const Tokenizer> tokenizer,
         std::span<const TokenId> end_of_generation);

  // First of all: the answer's first tokens are these, which were drawn and sent elsewhere. Neither they nor their text
  // are sent again; text that they held back is sent once it is certain. An end with the last of them ends the answer;
  // one before it fails it.
  void resume(std::span<const TokenId> tokens);
  // The same, but they and their text are sent.
  void replay(std::span<const TokenId> tokens);
  void add_prompt_record(TokenRecord record) { pending_.prompt.push_back(std::move(record)); }
  // Takes a drawn token. Returns why it ends the answer, kNone if it does not; after an end only take() is called.
  FinishReason push(TokenRecord&& record);
  // Ends the answer for a reason from outside (length, cancelled); text that was held back goes out. Nothing if it has
  // ended.
  void end(FinishReason reason);
  // The same, and text that was held back does not go out: it was sent before the answer was resumed.
  void end_silently(FinishReason reason);
  // Ends the answer with an error; text that was held back does not go out. Allocates nothing.
  void fail(Error error);

  void set_mirostat(float mu) { pending_.mirostat_mu = mu; }
  void set_progress(int32_t n_computed) { pending_.n_computed = n_computed; }
  void set_score(double score) { pending_.ending->score = score; }
  void set_embedding(std::vector<float> embedding) { pending_.ending->embedding = std::move(embedding); }

  bool finished() const { return pending_.finished; }
  FinishReason reason() const { return pending_.reason; }  // kNone while it goes on
  Usage& usage() { return pending_.usage; }
  Timing& timing() { return pending_.timing; }
  // Appends what is new since the last call to `out`, in place; nothing if nothing is. The last output is marked, once.
  void take(std::vector<Output>& out);

 private:
  void add_text(std::string_view text);
  void stop_at(int stop);
  void finish_as(FinishReason reason);

  std::shared_ptr<const Request> request_;
  // What each token asks, kept here: the request lies elsewhere.
  int32_t min_tokens_;
  bool ignore_eos_, has_stops_;
  bool last_taken_ = false;
  std::span<const TokenId> end_of_generation_;
  Output pending_;  // its ending is there from the beginning, as failing allocates nothing
  std::optional<Detokenizer> detokenizer_;
  std::optional<AnswerStops> matcher_;
  std::string piece_;
};

// What an answer to this request has sent with its first tokens, Request::resume (one or more), as one output: tokens
// and text. It is finished where the answer is, and has failed (kInvalid) where that ends before the last of them. From
// any thread.
Output replay_answer(std::shared_ptr<const Request> request, std::shared_ptr<const Tokenizer> tokenizer,
                     std::span<const TokenId> end_of_generation);

}  // namespace ibid
