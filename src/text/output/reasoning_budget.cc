#include "text/output/reasoning_budget.h"

#include <algorithm>
#include <utility>

#include "text/output/markers.h"

namespace ibid {

void ReasoningBlock::push(std::string_view bytes) {
  if (state_ == State::kClosed) return;
  seen_ += bytes;
  if (state_ == State::kBefore) {
    seen_.erase(0, markers::n_blank(seen_));
    const std::string& begin = markers_.begin;
    const size_t n = std::min(seen_.size(), begin.size());
    if (begin.empty() || seen_.compare(0, n, begin, 0, n) != 0) {
      state_ = State::kClosed;  // an answer without reasoning
    } else if (n == begin.size()) {
      state_ = State::kOpen;
      seen_.erase(0, n);
    }
  }
  if (state_ != State::kOpen) return;
  was_open_ = true;
  size_t longest = 0;
  for (const std::string& end : markers_.ends) {
    if (seen_.find(end) != std::string::npos) state_ = State::kClosed;
    longest = std::max(longest, end.size());
  }
  if (seen_.size() >= longest) seen_.erase(0, seen_.size() - longest + 1);
}

ReasoningBudget::ReasoningBudget(std::shared_ptr<const Tokenizer> tokenizer, int32_t max_tokens,
                                 ReasoningMarkers markers)
    : tokenizer_(std::move(tokenizer)),
      max_tokens_(max_tokens),
      markers_(std::move(markers)),
      n_before_(static_cast<size_t>(std::max(0, max_tokens))) {
  tokenizer_->encode(markers_.ends.front(), {.parse_special = true}, close_);
  if (markers_.is_open) return;
  // The opening marker must be complete before the end marker can follow.
  std::vector<TokenId> open;
  tokenizer_->encode(markers_.begin, {.parse_special = true}, open);
  n_before_ = std::max(n_before_, open.size());
}

std::optional<TokenId> ReasoningBudget::forced_after(std::span<const TokenId> answer) const {
  if (answer.size() < n_before_ || answer.size() >= n_before_ + close_.size()) return std::nullopt;
  ReasoningBlock block(markers_);
  for (size_t i = 0; i < n_before_ && block.may_go_on(); ++i) block.push(tokenizer_->token_bytes(answer[i], true));
  if (!block.is_open()) return std::nullopt;
  return close_[answer.size() - n_before_];
}

}  // namespace ibid
