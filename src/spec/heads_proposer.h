// HeadsProposer: draft heads (spec/draft_heads.h) as a proposer of chains and trees. A draft costs a few products of
// the target's width and nothing for the sequence before it, so that it is there from an answer's second token on. How
// many are drafted, and for which places, is chosen as an EAGLE head's are (spec/tree_drafting.h): Medusa's trees,
// whose places are fixed where rejection verifies them or the heads' file names them, and else those that pay. None is
// deeper than there are heads.
//
// One thread, the engine's; draws use the stream's team. All memory but sequences' tokens is held from the start.
#pragma once

#include <memory>
#include <vector>

#include "base/clock.h"
#include "spec/draft_heads.h"
#include "spec/drafting.h"
#include "spec/tree_drafting.h"

namespace ibid {

struct HeadsOptions {
  int32_t max_texts = 16;  // at a time; others have no drafts of it
  int32_t vocab_size = 0;  // V of the target
  int32_t context_len = 0;
  std::vector<TokenId> end_of_generation;  // which are not drafted
  bool always = false;                     // drafts as many as it may, whatever they cost
  int32_t branches = 1;                    // drafts for one place at most (TreeOptions); 1: chains
  std::vector<DraftPlace> tree = {};       // of all sequences (DraftHeads::read_tree); empty: it grows
};

class HeadsProposer final : public Proposer, public ProposerExtras {
 public:
  static constexpr int32_t kWidth = 3, kBranches = 3;

  // What DraftHeads::load() is to hold for these: a row for each sequence, then one for each place that is drawn after.
  static int32_t n_rows(const HeadsOptions& options) { return options.max_texts * (1 + width_of(options)); }
  // `heads` have n_rows(options); `stream` and `clock` outlive it.
  HeadsProposer(std::unique_ptr<DraftHeads> heads, Stream& stream, const HeadsOptions& options,
                const Clock& clock = steady_clock());

  void begin_step(const StepPrices& prices) override { drafting_.begin_step(prices); }
  double spent() const override { return drafting_.spent(); }
  bool reads_hidden() const override { return true; }
  void saw(int64_t sequence, int32_t n_tokens, std::span<const float> hidden) override;
  ProposerExtras* extras() override { return this; }
  void propose(const ProposalInput& input, Drafts& drafts) override;
  void propose_all(std::span<const Proposal> proposals) override;
  void forget(int64_t sequence) override;

  int64_t n_passes() const { return n_passes_; }  // for tests

 private:
  struct Text : DraftText {
    int32_t n_seen = 0;  // tokens of the sequence that the hidden state was told with; 0: none
  };
  Text* text_of(int64_t sequence);
  int32_t row_of(const DraftLane& lane) const {
    return static_cast<int32_t>(static_cast<Text*>(lane.text) - &texts_[0]);
  }
  void drop(Text& text);
  void measure();
  void list_lanes(std::span<const Proposal> proposals);
  bool pass(int32_t head);
  static int32_t width_of(const HeadsOptions& options) {
    if (!options.tree.empty()) return widest(options.tree);
    return options.branches > 1 ? kWidth : 1;
  }
  TokenId last_of(const Text& text) const;
  void load_way(const DraftLane& lane, int32_t row);

  std::unique_ptr<DraftHeads> heads_;
  Stream& stream_;
  const Clock& clock_;
  Drafting drafting_;
  TreeDrafting trees_;
  std::vector<Text> texts_;  // the place is the row of the heads
  std::vector<TokenId> way_;
  std::vector<DraftLane> lanes_;
  std::vector<int32_t> rows_;
  int64_t n_passes_ = 0;
};

}  // namespace ibid
