#include "engine/state/answer.h"

#include <algorithm>
#include <utility>

namespace ibid {

Answer::Answer(std::shared_ptr<const Request> request, int32_t choice, std::shared_ptr<const Tokenizer> tokenizer,
               std::span<const TokenId> end_of_generation)
    : request_(std::move(request)),
      min_tokens_(request_->sampling.min_tokens),
      ignore_eos_(request_->sampling.ignore_eos),
      has_stops_(request_->stops != nullptr),
      end_of_generation_(end_of_generation) {
  if (tokenizer) {
    // The answer goes on from the prompt's text.
    detokenizer_.emplace(std::move(tokenizer),
                         DetokenizerOptions{.show_special = request_->show_special, .continues_text = true});
  }
  if (request_->stops && !request_->stops->strings().empty()) matcher_.emplace(request_->stops, request_->markup);
  pending_.ending = std::make_unique<Ending>();
  pending_.request = request_->id;
  pending_.choice = choice;
  pending_.reason = FinishReason::kNone;
  pending_.usage.prompt_tokens = static_cast<int32_t>(request_->prompt.size());
}

Output replay_answer(std::shared_ptr<const Request> request, std::shared_ptr<const Tokenizer> tokenizer,
                     std::span<const TokenId> end_of_generation) {
  Answer answer(request, 0, std::move(tokenizer), end_of_generation);
  answer.replay(request->resume.tokens);
  std::vector<Output> out;
  answer.take(out);
  return std::move(out.front());
}

void Answer::resume(std::span<const TokenId> tokens) {
  replay(tokens);
  pending_.tokens.clear();
  pending_.text.clear();
}

void Answer::replay(std::span<const TokenId> tokens) {
  const auto n = static_cast<int32_t>(tokens.size());
  for (int32_t i = 0; i < n && !finished(); ++i) push({.chosen = {.token = tokens[static_cast<size_t>(i)]}});
  pending_.usage.resumed_tokens = n;
  if (pending_.usage.completion_tokens == n) return;
  pending_.finished = false;
  fail(invalid("resume has " + std::to_string(n) + " tokens, and the answer ends with the first " +
                   std::to_string(pending_.usage.completion_tokens) + " of them.",
               "resume"));
}

FinishReason Answer::push(TokenRecord&& record) {
  const TokenId id = record.chosen.token;
  pending_.tokens.push_back(std::move(record));
  ++pending_.usage.completion_tokens;
  const bool may_end = pending_.usage.completion_tokens >= min_tokens_;
  const bool is_end = !ignore_eos_ && std::ranges::find(end_of_generation_, id) != end_of_generation_.end();
  const bool is_stop = has_stops_ && request_->stops->is_stop(id);
  if (may_end && is_end) {
    end(FinishReason::kEos);
    return pending_.reason;
  }
  if (!detokenizer_) {
    if (may_end && is_stop) end(FinishReason::kStop);
    return pending_.reason;
  }
  if (may_end && is_stop && !request_->stops->include_stop()) {
    end(FinishReason::kStop);
    return pending_.reason;
  }
  piece_.clear();
  detokenizer_->push(id, piece_);
  if (may_end) {
    add_text(piece_);
  } else {
    matcher_ ? matcher_->pass(piece_, pending_.text) : static_cast<void>(pending_.text += piece_);
  }
  if (may_end && is_stop && !pending_.finished) end(FinishReason::kStop);
  return pending_.reason;
}

void Answer::add_text(std::string_view text) {
  if (!matcher_) {
    pending_.text += text;
  } else if (const auto stop = matcher_->push(text, pending_.text)) {
    stop_at(*stop);
  }
}

void Answer::stop_at(int stop) {
  pending_.ending->stop_text = request_->stops->strings()[static_cast<size_t>(stop)];
  finish_as(FinishReason::kStop);
}

void Answer::end(FinishReason reason) {
  if (pending_.finished) return;
  if (detokenizer_) {
    piece_.clear();
    detokenizer_->finish(piece_);
    add_text(piece_);
  }
  if (pending_.finished) return;  // those last bytes completed a stop string
  if (matcher_) {
    if (const auto stop = matcher_->finish(pending_.text)) return stop_at(*stop);
  }
  finish_as(reason);
}

void Answer::end_silently(FinishReason reason) {
  end(reason);
  pending_.text.clear();
}

void Answer::fail(Error error) {
  if (pending_.finished) return;
  pending_.ending->error = std::move(error);
  finish_as(FinishReason::kError);
}

void Answer::finish_as(FinishReason reason) {
  pending_.finished = true;
  pending_.reason = reason;
}

void Answer::take(std::vector<Output>& out) {
  const bool has_news =
      !pending_.tokens.empty() || !pending_.text.empty() || pending_.finished || pending_.n_computed > 0;
  if (!has_news || last_taken_) return;
  last_taken_ = pending_.finished;
  // Field by field: most are empty most of the time, and a thousand of these go out in a step.
  Output& o = out.emplace_back();
  o.request = pending_.request;
  o.choice = pending_.choice;
  o.tokens = std::move(pending_.tokens);
  pending_.tokens.clear();
  if (!pending_.text.empty()) o.text.swap(pending_.text);
  if (!pending_.prompt.empty()) o.prompt.swap(pending_.prompt);
  o.n_computed = std::exchange(pending_.n_computed, 0);
  o.usage = pending_.usage;
  o.timing = pending_.timing;
  o.finished = pending_.finished;
  o.reason = pending_.reason;
  o.mirostat_mu = pending_.mirostat_mu;
  if (pending_.finished) o.ending = std::move(pending_.ending);
}

}  // namespace ibid
