// TreeDrafting: how trees of drafts are drawn, as EAGLE-2 does (Li et al., "EAGLE-2: Faster Inference of Language
// Models with Dynamic Draft Trees", 2024, section 4): at each depth the likeliest places are drawn after, several
// tokens for each; of all that was drawn the likeliest are proposed, with all on the way to them. How likely a draft is
// taken over is what sequences and this proposer turned out to be (draft_confidence.h), not the proposer's own opinion;
// of runners-up it is learned apart, also of those that were never verified.
//
// Drafts that will be verified by coupling are those that come first in the race of the request's own noise over the
// proposer's row (at temperature 0: the best). A pinned sequence has a tree whose places depend on how many drafts it
// may have alone (draft_tree.h): for rejection what was drawn for a place may decide neither whether nor in which order
// it is offered. Its siblings are drawn each without those before it. Where a file names a tree, all sequences' have
// its places, of which those are drawn after that pay, and the likeliest are proposed.
//
// The first place is worth what a chain's is; what more than one token for a place costs the proposer is one look at
// the row more, and it is asked for only where a runner-up might pay. One thread.
#pragma once

#include <span>
#include <vector>

#include "spec/drafting.h"

namespace ibid {

struct TreeOptions {
  int32_t branches = 1;  // tokens for one place at most, up to ProposeRule::kMost; 1: chains
  int32_t width = 1;     // places of a sequence that are drawn after at one depth
  int32_t depth = kMaxDrafts;
  std::vector<DraftPlace> places = {};  // of all sequences' trees (named_tree()); empty: they grow
};

class TreeDrafting {
 public:
  // `drafting` outlives it.
  TreeDrafting(Drafting& drafting, const TreeOptions& options) : drafting_(drafting), options_(options) {}

  // Before Drafting::follow(): what the last drafts turned out to be, and the tree is empty.
  void observe(DraftText& text, const ProposalInput& input);
  void begin_text(DraftText& text) const { text.tree.runners_up = DraftConfidence(runner_up_.rate()); }

  // As Drafting::propose_all(). A pass computes the lanes' last nodes, of a sequence side by side, and draws after
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
    DraftText* text;
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
  // Hopeful at first, so that they are tried where rows are cheap.
  PairAgreement runner_up_{0.4F};
  std::vector<Root> roots_;  // of this step
  std::vector<DraftLane> next_;
};

}  // namespace ibid
