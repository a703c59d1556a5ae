// HeadsProposer: draft heads (spec/heads/draft_heads.h) as a proposer of chains and trees. A draft costs a few products
// of the target's width and nothing for the preceding sequence, so drafts are available from an answer's second token
// on. The number and places of drafts are chosen as for an EAGLE head (spec/drawn/tree_drafting.h): Medusa's fixed
// trees if rejection verifies them or the heads' file names them, else the places that pay. No tree is deeper than the
// number of heads.
//
// One thread, the engine's; sampling uses the stream's team. All memory but sequences' tokens is allocated at
// construction.
#pragma once

#include <memory>
#include <vector>

#include "base/clock.h"
#include "spec/drawn/drafting.h"
#include "spec/drawn/tree_drafting.h"
#include "spec/heads/draft_heads.h"

namespace ibid {

struct HeadsOptions {
  int32_t max_sequences = 16;  // at a time; further sequences get no drafts from it
  int32_t vocab_size = 0;      // V of the target
  int32_t context_len = 0;
  std::vector<TokenId> end_of_generation;  // never drafted
  bool always = false;                     // drafts as many tokens as allowed, whatever they cost
  int32_t branches = 1;                    // maximum drafts for one place (TreeOptions); 1: chains
  std::vector<DraftPlace> tree = {};       // of all sequences (DraftHeads::read_tree); empty: it grows dynamically
};

class HeadsProposer final : public Proposer, public ProposerExtras {
 public:
  static constexpr int32_t kWidth = 3, kBranches = 3;

  // max_rows for DraftHeads::load(): a row for each sequence, then one for each tree node that is expanded.
  static int32_t n_rows(const HeadsOptions& options) { return options.max_sequences * (1 + width_of(options)); }
  // `heads` were loaded with n_rows(options); `stream` and `clock` outlive the proposer.
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
  struct Seq : DraftSequence {
    int32_t n_seen = 0;  // tokens of the sequence when its hidden state was received; 0: none
  };
  Seq* seq_of(int64_t sequence);
  int32_t row_of(const DraftLane& lane) const { return static_cast<int32_t>(static_cast<Seq*>(lane.seq) - &seqs_[0]); }
  void drop(Seq& seq);
  void measure();
  void list_lanes(std::span<const Proposal> proposals);
  bool pass(int32_t head);
  static int32_t width_of(const HeadsOptions& options) {
    if (!options.tree.empty()) return widest(options.tree);
    return options.branches > 1 ? kWidth : 1;
  }
  TokenId last_of(const Seq& seq) const;
  void load_way(const DraftLane& lane, int32_t row);

  std::unique_ptr<DraftHeads> heads_;
  Stream& stream_;
  const Clock& clock_;
  Drafting drafting_;
  TreeDrafting trees_;
  std::vector<Seq> seqs_;  // the index is the row of the heads
  std::vector<TokenId> way_;
  std::vector<DraftLane> lanes_;
  std::vector<int32_t> rows_;
  int64_t n_passes_ = 0;
};

}  // namespace ibid
