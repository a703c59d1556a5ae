// Drafting: what those share who draw drafts from rows of logits of their own, token by token, all sequences of a step
// in each pass: a draft model, heads on the target. It knows the sequences, chooses whose next draft pays, and draws.
//
// Draws are those that the target will make: the request's own sampler over the proposer's row, with the same seed,
// position, history, state and grammar. Target and proposer race the same noise, so that two alike rows draw the same
// token also at a temperature; of rows p and q they do with probability sum over x of
// 1 / sum over y of max(p(y)/p(x), q(y)/q(x)).
//
// One thread; draws use a team.
#pragma once

#include <cstdint>
#include <new>
#include <span>
#include <vector>

#include "base/thread_team.h"
#include "spec/draft_choice.h"
#include "spec/draft_confidence.h"
#include "spec/draft_tree.h"
#include "spec/pass_cost.h"
#include "spec/proposer.h"

namespace ibid {

struct DraftText {
  int64_t sequence = -1;        // -1: none
  std::vector<TokenId> tokens;  // the sequence, then drafts of this step or the last
  int32_t n_text = 0;           // without drafts
  SamplerState state;           // after the last draft
  std::vector<float> sureness;  // of each draft: the proposer's own probability
  std::vector<float> q;         // [drafts, V] of rejection: what was drawn from, in the order of the draws
  DraftConfidence confidence;
  DraftTree tree;  // of who drafts trees (spec/tree_drafting.h), in the place of drafts in `tokens` and `sureness`
};

struct DraftLane {  // a sequence in this step, or a place of its tree
  DraftText* text = nullptr;
  const Proposal* proposal = nullptr;
  float likely = 1;              // that all drafts so far are taken over
  int32_t n_drafts = 0;          // so far, on the way to this place
  int32_t node = -1;             // of the tree, the last of them; -1: the sequence's end
  int32_t n_wanted = 1;          // tokens for this place
  int32_t law = 0;               // of rejection: which of the sequence's q it is drawn from
  int32_t n_tokens = 0;          // of this pass
  int32_t row = -1;              // of this pass; -1: none
  bool is_ready = false;         // its next row came with an earlier one's pass
  bool is_pinned = false;        // drafts as many as it may
  bool is_starved = false;       // its draw found no memory
  std::vector<DraftNode> drawn;  // the surest first; empty: none
  std::span<const float> q;      // that they were drawn from
};

struct DraftingOptions {
  int32_t vocab_size = 0;                  // V of the target; the proposer's rows may be padded to more or fewer
  std::vector<TokenId> ids;                // what a row's columns stand for, ascending; empty: the ids as they are
  int32_t context_len = 0;                 // tokens of a sequence that may be read
  std::vector<TokenId> end_of_generation;  // which are not drafted
  bool always = false;                     // drafts as many as it may, whatever they cost
  float prior_rate = 0.75F;                // of drafts that are right, as long as nothing is known
};

class Drafting {
 public:
  explicit Drafting(DraftingOptions options);

  void begin_step(const StepPrices& prices);
  const StepPrices& prices() const { return prices_; }
  const PassCost& cost() const { return cost_; }
  double spent() const { return spent_; }  // seconds of this step
  bool is_priced() const { return prices_.step > 0 && cost_.is_known(); }

  // Drafts for all of them: list_lanes() makes a lane of each sequence that may have any; pass(i), the i-th from 0,
  // computes what the lanes that are left lack and draws, or is false where nobody can go on. Where memory runs out,
  // drop_all() forgets all sequences, for whatever was begun is not whole, and nobody has drafts.
  template <typename ListLanes, typename Pass, typename DropAll>
  void propose_all(std::span<const Proposal> proposals, std::vector<DraftLane>& lanes, const ListLanes& list_lanes,
                   const Pass& pass, const DropAll& drop_all) const {
    try {
      list_lanes();
      DraftChoice choice(prices_.n_decodes, prices_.step);
      choose(lanes, choice);
      for (int32_t i = 0; !lanes.empty() && pass(i); ++i) {
        take_drawn(lanes);
        choose(lanes, choice);
      }
    } catch (const std::bad_alloc&) {
      drop_all();
      for (const Proposal& p : proposals) p.drafts->clear();
    }
  }

  // Makes `sequence` that of the input, from its beginning.
  void begin_text(DraftText& text, const ProposalInput& input);
  // What the sequence became since it was last seen; how many of the tokens that were there agree with it.
  int32_t follow(DraftText& text, const ProposalInput& input);
  // Whether this sequence may be drafted for: its drafts are pinned, or it has credit and nobody proposed likelier
  // ones.
  bool may_draft(const DraftText& text, const Proposal& proposal) const;
  bool is_pinned(const ProposalInput& input) const { return options_.always || pins_drafts(input.verifier); }
  PairAgreement& pair() { return pair_; }
  const DraftingOptions& options() const { return options_; }
  // Keeps the lanes whose next draft pays, none if a pass for them does not.
  void choose(std::vector<DraftLane>& lanes, DraftChoice& choice) const;
  // The tokens that the target's sampler draws from rows of the proposer, logits[R, row_len], over the team; lanes
  // without a row have none. Throws std::bad_alloc after the last one, if one found no memory.
  void draw(std::vector<DraftLane>& lanes, std::span<const float> logits, size_t row_len, ThreadTeam& team);
  // Tokens become drafts; lanes that go on after theirs stay.
  void take_drawn(std::vector<DraftLane>& lanes) const;
  // A pass took so long; of 0 tokens: what was drawn from rows that were there.
  void passed(int32_t n_tokens, double seconds);

 private:
  struct Scratch {  // of a thread that draws
    SamplerScratch sampler;
    std::vector<uint32_t> mask;
    std::vector<float> row;       // of the target's length
    std::vector<TokenId> answer;  // with the way to a place of a tree
    std::vector<SearchCandidate> best;
  };
  void draw(DraftLane& lane, std::span<const float> row, Scratch& scratch) const;
  SampleHistory history_of(const DraftLane& lane, Scratch& scratch) const;
  void add_drawn(DraftLane& lane, std::span<const TokenId> tokens, const SamplerState& state,
                 std::span<const float> row, SamplerScratch& scratch) const;
  void observe(DraftText& text, const ProposalInput& input, int32_t n_agreed);
  std::span<const float> as_target(std::span<const float> row, std::vector<float>& out) const;

  DraftingOptions options_;
  PairAgreement pair_;
  PassCost cost_;
  StepPrices prices_;
  double spent_ = 0;
  std::vector<Scratch> scratch_;  // of each thread
};

}  // namespace ibid
