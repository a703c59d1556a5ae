// DraftTree: the drafts of a sequence as they are drawn, several for one place; and which places a tree has that may
// not grow by what is drawn.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "sample/sampler.h"
#include "spec/draft_confidence.h"

namespace ibid {

struct DraftNode {
  TokenId token = TokenId::kNone;
  int32_t parent = -1;  // among the tree's nodes, before this one; -1: the sequence's end
  int32_t depth = 1;    // it and those before it
  float sureness = 0;   // the proposer's own probability, where none of the siblings before it is right
  float likely = 0;     // that it is taken over: it and all on the way to it
  SamplerState state;   // after it; the sampler's memory as if the first sibling had been drawn
  std::span<const float> q;
  bool is_offered = true;  // false: after it an answer ends
  int32_t place = -1;      // of a fixed tree
  int32_t row = -1;        // of the pass that it was drawn in
  int32_t slot = -1;       // the proposer's own; -1: none yet
};

struct DraftPlace {
  int32_t parent = -1;  // a place before this one; -1: the sequence's end
  int32_t rank = 0;     // among its siblings
  int32_t depth = 1;
};

struct DraftTree {
  std::vector<DraftNode> nodes;    // siblings side by side, as they were drawn
  std::vector<DraftPlace> places;  // of a fixed or named tree; empty: it grows by what is drawn
  int32_t n_laws = 0;              // that were drawn from
  DraftConfidence runners_up;      // of what was drawn second or later, where those before it were wrong
  void clear() { nodes.clear(), places.clear(), n_laws = 0; }
};

// The n places that are likeliest to be reached where a first draft is right in 0.6 of cases, a second in 0.15, a third
// in 0.06 and each further one in half as many (about what rejection takes over of siblings of laws 0.4 apart), at most
// `branches` side by side, `width` with others after them at a depth and none deeper than `depth`: a function of these
// numbers alone (Chen et al., "Sequoia", 2024, section 3.1, has the best tree for such numbers). One branch: a chain.
// The likeliest first; fewer than n where there are no more.
std::vector<DraftPlace> fixed_tree(int32_t n, int32_t branches, int32_t width, int32_t depth);

// The places of a tree that another chose, the likeliest first, as Medusa's program writes it ("medusa_choices"):
// each place as the ranks on the way to it. What is deeper than `depth` or of a rank that nobody draws is left out with
// all after it. Errors: a place comes before its parent or before a sibling of less rank, twice, or there are none.
Result<std::vector<DraftPlace>> named_tree(const std::vector<std::vector<int64_t>>& ways, int32_t depth);
// The most places of one depth that others follow.
int32_t widest(const std::vector<DraftPlace>& places);

}  // namespace ibid
