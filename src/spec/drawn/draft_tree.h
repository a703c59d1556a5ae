// DraftTree: the drafts of a sequence as they are drawn, several per place; and the places of trees whose shape must
// not depend on what is drawn.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "sample/sampler.h"
#include "spec/drawn/draft_confidence.h"

namespace ibid {

struct DraftNode {
  TokenId token = TokenId::kNone;
  int32_t parent = -1;  // among the tree's nodes, before this one; -1: the sequence's end
  int32_t depth = 1;    // number of drafts on the path, this one included
  float sureness = 0;   // the proposer's own probability, given that no earlier sibling is right
  float likely = 0;     // probability that it and all drafts on the path to it are accepted
  SamplerState state;   // after it; the sampler's state as if the first sibling had been drawn
  std::span<const float> q;
  bool is_offered = true;  // false: the answer ends after it
  int32_t place = -1;      // of a fixed tree
  int32_t row = -1;        // row of the pass that it was drawn in
  int32_t slot = -1;       // the proposer's own slot; -1: none yet
};

struct DraftPlace {
  int32_t parent = -1;  // a place before this one; -1: the sequence's end
  int32_t rank = 0;     // among its siblings
  int32_t depth = 1;
};

struct DraftTree {
  std::vector<DraftNode> nodes;    // siblings adjacent, in the order drawn
  std::vector<DraftPlace> places;  // of a fixed or named tree; empty: the tree grows dynamically
  int32_t n_laws = 0;              // number of distributions drawn from
  DraftConfidence runners_up;      // of tokens drawn second or later, given that the earlier ones are wrong
  void clear() { nodes.clear(), places.clear(), n_laws = 0; }
};

// The n places that are likeliest to be reached if a first draft is right with probability 0.6, a second 0.15, a third
// 0.06 and each further one half of the one before (about the acceptance of siblings by rejection for distributions 0.4
// apart), with at most `branches` siblings, at most `width` places with successors per depth, and no place deeper than
// `depth`: a function of these numbers only (Chen et al., "Sequoia", 2024, section 3.1, gives the best tree for such
// numbers). One branch: a chain. Likeliest first; fewer than n if there are no more.
std::vector<DraftPlace> fixed_tree(int32_t n, int32_t branches, int32_t width, int32_t depth);

// The places of a given tree, likeliest first, in the format of Medusa's program ("medusa_choices"): each place as the
// ranks on the path to it. Places deeper than `depth` or of a rank that is never drawn are left out, with all their
// successors. Errors: a place comes before its parent or before a sibling of lower rank, occurs twice, or the tree is
// empty.
Result<std::vector<DraftPlace>> named_tree(const std::vector<std::vector<int64_t>>& ways, int32_t depth);
// The maximum number of places with successors at one depth.
int32_t widest(const std::vector<DraftPlace>& places);

}  // namespace ibid
