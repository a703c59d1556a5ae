// ReasoningBudget: how many tokens a model may reason before its answer must come. A block of reasoning that is still
// open after so many tokens is closed: the tokens of its end marker are the only ones that may follow. Counted in
// tokens and a function of the answer's tokens alone, so that no schedule, draft or preemption changes it; where a
// grammar stands after the reasoning, it reads the marker as if the model had written it.
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
// marker. What comes before a marker that opens is blanks alone.
class ReasoningBlock {
 public:
  explicit ReasoningBlock(ReasoningMarkers markers)
      : markers_(std::move(markers)), state_(markers_.is_open ? State::kOpen : State::kBefore) {}

  // Reads on. The cost is linear in the bytes.
  void push(std::string_view bytes);
  bool is_open() const { return state_ == State::kOpen; }
  bool is_none() const { return state_ == State::kClosed && !was_open_; }  // the text began otherwise
  // It may be open yet, or is.
  bool may_go_on() const { return state_ != State::kClosed; }

 private:
  enum class State : uint8_t { kBefore, kOpen, kClosed };
  ReasoningMarkers markers_;
  State state_;
  bool was_open_ = false;
  std::string seen_;  // that may be the beginning of a marker
};

class ReasoningBudget {
 public:
  ReasoningBudget(std::shared_ptr<const Tokenizer> tokenizer, int32_t max_tokens, ReasoningMarkers markers);

  // The one token that may follow these of the answer; none: any. Looks at no more than max_tokens of them, and that
  // for as many answers as the marker has tokens.
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
