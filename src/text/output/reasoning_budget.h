// ReasoningBudget: how many tokens a model may reason before its answer must begin. A block of reasoning that is still
// open after that many tokens is closed: only the tokens of its end marker may follow. It is a function of the answer's
// tokens alone, so that no schedule, draft or preemption changes it; a grammar after the reasoning reads the marker as
// if the model had written it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer/tokenizer.h"

namespace ibid {

// How a model writes its reasoning: the marker that opens it, those that end it (the first is its own; a call of a tool
// may be another), and whether the prompt has opened it.
struct ReasoningMarkers {
  std::string begin;
  std::vector<std::string> ends;
  bool is_open = false;
};

// Where reasoning stands in a text: from its beginning, if it opens there or the prompt has opened it, to an end
// marker. Only blanks may precede an opening marker.
class ReasoningBlock {
 public:
  explicit ReasoningBlock(ReasoningMarkers markers)
      : markers_(std::move(markers)), state_(markers_.is_open ? State::kOpen : State::kBefore) {}

  // Reads on. The cost is linear in the bytes.
  void push(std::string_view bytes);
  bool is_open() const { return state_ == State::kOpen; }
  bool is_none() const { return state_ == State::kClosed && !was_open_; }  // the text began otherwise
  // Open, or still able to open.
  bool may_go_on() const { return state_ != State::kClosed; }

 private:
  enum class State : uint8_t { kBefore, kOpen, kClosed };
  ReasoningMarkers markers_;
  State state_;
  bool was_open_ = false;
  std::string seen_;  // the possible beginning of a marker
};

class ReasoningBudget {
 public:
  ReasoningBudget(std::shared_ptr<const Tokenizer> tokenizer, int32_t max_tokens, ReasoningMarkers markers);

  // The only token that may follow these tokens of the answer; none: any. Reads at most max_tokens of them, for at most
  // as many prefixes as the marker has tokens.
  std::optional<TokenId> forced_after(std::span<const TokenId> answer) const;

  int32_t max_tokens() const { return max_tokens_; }
  const ReasoningMarkers& markers() const { return markers_; }

 private:
  std::shared_ptr<const Tokenizer> tokenizer_;
  int32_t max_tokens_;
  ReasoningMarkers markers_;
  size_t n_before_;  // tokens after which it closes
  std::vector<TokenId> close_;
};

}  // namespace ibid
