// HeadsProposer: draft heads (spec/draft_heads.h) as a proposer. A draft costs a few products of the target's width and
// nothing for the text before it, so that it is there from an answer's second token on. How many are drafted is chosen
// as a draft model's are; no more than there are heads.
//
// One thread, the engine's; draws use the stream's team. All memory but texts' tokens is held from the start.
#pragma once

#include <memory>
#include <vector>

#include "base/clock.h"
#include "spec/draft_heads.h"
#include "spec/drafting.h"

namespace ibid {

struct HeadsOptions {
  int32_t max_texts = 16;  // at a time; others have no drafts of it
  int32_t vocab_size = 0;  // V of the target
  int32_t context_len = 0;
  std::vector<TokenId> end_of_generation;  // which are not drafted
  bool always = false;                     // drafts as many as it may, whatever they cost
};

class HeadsProposer final : public Proposer {
 public:
  // `heads` have rows for max_texts; `stream` and `clock` outlive it.
  HeadsProposer(std::unique_ptr<DraftHeads> heads, Stream& stream, const HeadsOptions& options,
                const Clock& clock = steady_clock());

  void begin_step(const StepPrices& prices) override { drafting_.begin_step(prices); }
  bool heeds_prices() const override { return true; }
  bool reads_hidden() const override { return true; }
  void saw(int64_t sequence, int32_t n_tokens, std::span<const float> hidden) override;
  void propose(const ProposalInput& input, Drafts& drafts) override;
  void propose_all(std::span<const Proposal> proposals) override;
  void forget(int64_t sequence) override;

  int64_t n_passes() const { return n_passes_; }  // for tests

 private:
  struct Text : DraftText {
    int32_t n_seen = 0;  // tokens of the text that the hidden state was told with; 0: none
  };
  Text* text_of(int64_t sequence);
  int32_t row_of(const DraftLane& lane) const {
    return static_cast<int32_t>(static_cast<Text*>(lane.text) - &texts_[0]);
  }
  void drop(Text& text);
  void measure();
  void list_lanes(std::span<const Proposal> proposals);
  bool pass(int32_t head);

  std::unique_ptr<DraftHeads> heads_;
  Stream& stream_;
  const Clock& clock_;
  Drafting drafting_;
  std::vector<Text> texts_;  // the place is the row of the heads
  std::vector<DraftLane> lanes_;
  std::vector<int32_t> rows_;
  int64_t n_passes_ = 0;
};

}  // namespace ibid
