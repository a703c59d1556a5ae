// TreeDrafting: draws trees of drafts as EAGLE-2 does (Li et al., "EAGLE-2: Faster Inference of Language Models with
// Dynamic Draft Trees", 2024, section 4): each depth expands the likeliest nodes with several tokens each; the
// likeliest of all nodes are proposed, with all their ancestors. A draft's acceptance probability is estimated from
// past acceptance of sequences and this proposer (draft_confidence.h), not from the proposer's own probability alone;
// the estimate for runners-up is separate and also learns from runners-up that were never verified.
//
// Drafts for coupled verification are the first ones in the race of the request's own noise over the proposer's row (at
// temperature 0: the best). The tree of a pinned sequence has places that depend only on how many drafts it may have
// (draft_tree.h): for rejection, the token drawn for a place must not affect whether or in which order it is offered.
// Each sibling is drawn without those before it. If a file names a tree, all sequences use its places: those that pay
// are drawn, and the likeliest are proposed.
//
// The first place is worth as much as a chain's. Several tokens for one place cost one more look at the row, which is
// taken only if a runner-up might pay. One thread.
#pragma once

#include <span>
#include <vector>

#include "spec/drawn/drafting.h"

namespace ibid {

struct TreeOptions {
  int32_t branches = 1;  // maximum tokens for one place, up to ProposeRule::kMost; 1: chains
  int32_t width = 1;     // nodes of a sequence expanded at one depth
  int32_t depth = kMaxDrafts;
  std::vector<DraftPlace> places = {};  // of all sequences' trees (named_tree()); empty: trees grow dynamically
};

class TreeDrafting {
 public:
  // `drafting` outlives this object.
  TreeDrafting(Drafting& drafting, const TreeOptions& options) : drafting_(drafting), options_(options) {}

  // Called before Drafting::follow(): records which of the last drafts were right, and clears the tree.
  void observe(DraftSequence& seq, const ProposalInput& input);
  void begin_sequence(DraftSequence& seq) const { seq.tree.runners_up = DraftConfidence(runner_up_.rate()); }

  // As Drafting::propose_all(). A pass computes the lanes' last nodes, those of a sequence adjacent, and draws after
  // them.
  template <typename ListLanes, typename Pass, typename DropAll>
  void propose_all(std::span<const Proposal> proposals, std::vector<DraftLane>& lanes, const ListLanes& list_lanes,
                   const Pass& pass, const DropAll& drop_all) {
    try {
      list_lanes();
      DraftChoice choice(drafting_.prices().n_decodes, drafting_.prices().step);
      drafting_.choose(lanes, choice);
      begin(lanes, choice);
      for (int32_t i = 0; !lanes.empty() && pass(i); ++i) {
        grow(lanes, choice);
        drafting_.choose(lanes, choice);
      }
      for (const Root& root : roots_) offer(root);
    } catch (const std::bad_alloc&) {
      drop_all();
      for (const Proposal& p : proposals) p.drafts->clear();
    }
  }

 private:
  struct Root {
    DraftSequence* seq;
    const Proposal* proposal;
    bool is_pinned;
  };
  void begin(std::vector<DraftLane>& lanes, const DraftChoice& choice);
  void grow(std::vector<DraftLane>& lanes, const DraftChoice& choice);
  void take(const DraftLane& lane);
  int32_t wanted(const DraftLane& lane, const DraftChoice& choice) const;
  void add_lanes(const Root& root, size_t first_node, const DraftChoice& choice, std::vector<DraftLane>& out);
  static void offer(const Root& root);

  Drafting& drafting_;
  TreeOptions options_;
  // Optimistic at first, so that runners-up are tried where rows are cheap.
  PairAgreement runner_up_{0.4F};
  std::vector<Root> roots_;  // of this step
  std::vector<DraftLane> next_;
};

}  // namespace ibid
