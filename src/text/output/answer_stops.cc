#include "text/output/answer_stops.h"

#include <algorithm>
#include <utility>

namespace ibid {

AnswerStops::AnswerStops(std::shared_ptr<const StopSet> set, std::shared_ptr<const AnswerMarkup> markup)
    : set_(std::move(set)), matcher_(set_) {
  if (markup != nullptr) parser_ = std::make_unique<AnswerParser>(markup->parser);
}

std::optional<int> AnswerStops::push(std::string_view text, std::string& out) {
  if (parser_ == nullptr) return matcher_.push(text, out);
  if (is_stopped_) return std::nullopt;
  held_ += text;
  parser_->record_spans(&spans_);
  parser_->push(text, parts_);
  if (const std::optional<int> stop = match(out)) return stop;
  // Text that may become a stop waits, unless other content follows it.
  size_t n = parser_->n_certain();
  if (n <= matched_) n = std::min(n, matched_ - matcher_.held().size());
  release(n, out);
  return std::nullopt;
}

void AnswerStops::pass(std::string_view text, std::string& out) {
  if (parser_ == nullptr) {
    out += text;
    return;
  }
  held_ += text;
  parser_->record_spans(nullptr);
  parser_->push(text, parts_);
  parts_.clear();
  release(held_at_ + held_.size(), out);
  unread_ = held_at_;
}

std::optional<int> AnswerStops::finish(std::string& out) {
  if (parser_ == nullptr) return matcher_.finish(out), std::nullopt;
  if (is_stopped_) return std::nullopt;
  parser_->record_spans(&spans_);
  parser_->finish(parts_);
  if (const std::optional<int> stop = match(out)) return stop;
  is_stopped_ = true;
  release(held_at_ + held_.size(), out);
  return std::nullopt;
}

std::optional<int> AnswerStops::match(std::string& out) {
  parts_.clear();
  std::string unused;
  for (const TextSpan& span : spans_) {
    for (size_t i = 0; i < span.text.size(); ++i) {
      const size_t at = span.begin + i;
      if (at < unread_) continue;
      if (at != matched_) matcher_ = StopMatcher(set_);
      matched_ = at + 1;
      const std::optional<int> stop = matcher_.push(std::string_view(span.text).substr(i, 1), unused);
      if (!stop) continue;
      release(matched_ - (set_->include_stop() ? 0 : set_->strings()[static_cast<size_t>(*stop)].size()), out);
      held_.clear();
      is_stopped_ = true;
      return stop;
    }
    unused.clear();
  }
  spans_.clear();
  return std::nullopt;
}

// Sends what comes before `end`.
void AnswerStops::release(size_t end, std::string& out) {
  if (end <= held_at_) return;
  const size_t n = std::min(end - held_at_, held_.size());
  out.append(held_, 0, n);
  held_.erase(0, n);
  held_at_ += n;
}

}  // namespace ibid
