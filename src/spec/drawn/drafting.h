// Drafting: the part shared by proposers that sample drafts from their own rows of logits, token by token, all
// sequences of a step in each pass: a draft model, heads on the target. It keeps the sequences' state, chooses the
// sequences whose next draft pays, and samples.
//
// Sampling is the same as the target's: the request's own sampler over the proposer's row, with the same seed,
// position, history, state and grammar. Target and proposer race the same noise, so equal rows give the same token even
// at a temperature; rows p and q give the same token with probability sum over x of
//
// One thread; sampling uses a team.
#pragma once

#include <cstdint>
#include <new>
#include <span>
#include <vector>

#include "base/thread_team.h"
#include "spec/draft_choice.h"
#include "spec/drawn/draft_confidence.h"
#include "spec/drawn/draft_tree.h"
#include "spec/pass_cost.h"
#include "spec/proposer.h"

namespace ibid {

struct DraftSequence {
  int64_t sequence = -1;        // -1: none
  std::vector<TokenId> tokens;  // the sequence, then drafts of this step or of the last
  int32_t sequence_len = 0;     // tokens of the sequence, without drafts
  SamplerState state;           // after the last draft
  std::vector<float> sureness;  // per draft: the proposer's own probability
  std::vector<float> q;         // [drafts, V] for rejection: the distributions drawn from, in the order of the draws
  DraftConfidence confidence;
  DraftTree tree;  // for proposers that draft trees (spec/drawn/tree_drafting.h), in place of drafts in `tokens` and
                   // `sureness`
};

struct DraftLane {  // a sequence in this step, or a node of its tree
  DraftSequence* seq = nullptr;
  const Proposal* proposal = nullptr;
  float likely = 1;              // probability that all drafts so far are accepted
  int32_t n_drafts = 0;          // so far, on the path to this place
  int32_t node = -1;             // the path's last tree node; -1: the sequence's end
  int32_t n_wanted = 1;          // tokens to draw for this place
  int32_t law = 0;               // for rejection: index of its distribution in the sequence's q
  int32_t n_tokens = 0;          // of this pass
  int32_t row = -1;              // in this pass; -1: none
  bool is_ready = false;         // its next row was computed by an earlier pass
  bool is_pinned = false;        // drafts as many as it may
  bool is_starved = false;       // its draw ran out of memory
  std::vector<DraftNode> drawn;  // most probable first; empty: none
  std::span<const float> q;      // the distribution that they were drawn from
};

struct DraftingOptions {
  int32_t vocab_size = 0;                  // V of the target; the proposer's rows may be shorter or padded
  std::vector<TokenId> ids;                // token ids of a row's columns, ascending; empty: identity
  int32_t context_len = 0;                 // maximum tokens of a sequence
  std::vector<TokenId> end_of_generation;  // never drafted
  bool always = false;                     // drafts as many as it may, whatever they cost
  float prior_rate = 0.75F;                // expected acceptance rate before any observation
};

class Drafting {
 public:
  explicit Drafting(DraftingOptions options);

  void begin_step(const StepPrices& prices);
  const StepPrices& prices() const { return prices_; }
  const PassCost& cost() const { return cost_; }
  double spent() const { return spent_; }  // seconds spent in this step
  bool is_priced() const { return prices_.step > 0 && cost_.is_known(); }

  // Proposes for all sequences: list_lanes() makes a lane of each sequence that may have drafts; pass(i), called with i
  // = 0, 1, ..., computes what the remaining lanes need and samples, and returns false if no lane can go on. If memory
  // runs out, drop_all() drops the state of all sequences, which may be incomplete, and no sequence gets drafts.
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

  // Starts a sequence: `seq` becomes the input's sequence.
  void begin_sequence(DraftSequence& seq, const ProposalInput& input);
  // Updates `seq` to the input's sequence. Returns how many of its tokens, drafts included, agree with it.
  int32_t follow(DraftSequence& seq, const ProposalInput& input);
  // Whether this sequence may be drafted for: its drafts are pinned, or it has credit and no earlier proposer's drafts
  // are likelier.
  bool may_draft(const DraftSequence& seq, const Proposal& proposal) const;
  bool is_pinned(const ProposalInput& input) const { return options_.always || pins_drafts(input.verifier); }
  PairAgreement& pair() { return pair_; }
  const DraftingOptions& options() const { return options_; }
  // Keeps the lanes whose next draft pays; keeps none if a pass for them does not.
  void choose(std::vector<DraftLane>& lanes, DraftChoice& choice) const;
  // Samples with the target's sampler from the proposer's rows, logits[R, row_len], over the team; lanes without a row
  // get no tokens. Throws std::bad_alloc after the last lane if one ran out of memory.
  void draw(std::vector<DraftLane>& lanes, std::span<const float> logits, size_t row_len, ThreadTeam& team);
  // Turns drawn tokens into drafts; keeps the lanes that go on.
  void take_drawn(std::vector<DraftLane>& lanes) const;
  // Records a pass's duration; n_tokens 0: sampling from rows that were already computed.
  void passed(int32_t n_tokens, double seconds);

 private:
  struct Scratch {  // per sampling thread
    SamplerScratch sampler;
    std::vector<uint32_t> mask;
    std::vector<float> row;       // padded or cut to the target's length
    std::vector<TokenId> answer;  // including the path to a tree node
    std::vector<SearchCandidate> best;
  };
  void draw(DraftLane& lane, std::span<const float> row, Scratch& scratch) const;
  SampleHistory history_of(const DraftLane& lane, Scratch& scratch) const;
  void add_drawn(DraftLane& lane, std::span<const TokenId> tokens, const SamplerState& state,
                 std::span<const float> row, SamplerScratch& scratch) const;
  void observe(DraftSequence& seq, const ProposalInput& input, int32_t n_agreed);
  std::span<const float> as_target(std::span<const float> row, std::vector<float>& out) const;

  DraftingOptions options_;
  PairAgreement pair_;
  PassCost cost_;
  StepPrices prices_;
  double spent_ = 0;
  std::vector<Scratch> scratch_;  // one per thread
};

}  // namespace ibid
