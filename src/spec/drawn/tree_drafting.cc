#include "spec/drawn/tree_drafting.h"

#include <algorithm>
#include <functional>
#include <utility>

namespace ibid {
namespace {

int32_t count_after(const std::vector<DraftPlace>& places, int32_t parent) {
  return static_cast<int32_t>(std::ranges::count(places, parent, &DraftPlace::parent));
}

}  // namespace

// ---- fixed trees ---------------------------------------------------------------------------------------------------

std::vector<DraftPlace> fixed_tree(int32_t n, int32_t branches, int32_t width, int32_t depth) {
  struct Next {
    DraftPlace place;
    double likely;  // given its parent, and that the siblings before it are wrong
    double own() const {
      constexpr double kOfRank[] = {0.6, 0.15, 0.06};
      double out = likely * kOfRank[std::min(place.rank, 2)];
      for (int32_t rank = 2; rank < place.rank; ++rank) out /= 2;
      return out;
    }
  };
  std::vector<Next> next = {{{}, 1}};
  std::vector<DraftPlace> out;
  std::vector<int32_t> n_after(static_cast<size_t>(n) + 1);  // places with successors per depth
  while (static_cast<int32_t>(out.size()) < n && !next.empty()) {
    const auto best = std::ranges::max_element(next, {}, &Next::own);
    const Next taken = *best;
    next.erase(best);
    const DraftPlace& place = taken.place;
    if (place.rank == 0 && ++n_after[static_cast<size_t>(place.depth) - 1] > width) continue;
    out.push_back(place);
    const auto index = static_cast<int32_t>(out.size()) - 1;
    if (place.rank + 1 < branches) next.push_back({{place.parent, place.rank + 1, place.depth}, taken.likely});
    if (place.depth < depth) next.push_back({{index, 0, place.depth + 1}, taken.own()});
  }
  return out;
}

// ---- observed drafts -----------------------------------------------------------------------------------------------

// Observes the drafts along the sequence's actual path, up to the first place without a right draft, verified or not.
void TreeDrafting::observe(DraftSequence& seq, const ProposalInput& input) {
  const auto n_prompt = static_cast<int32_t>(input.prompt.size());
  const int32_t n = n_prompt + static_cast<int32_t>(input.answer.size());
  const auto& nodes = seq.tree.nodes;
  int32_t parent = -1;
  for (int32_t position = seq.sequence_len; position < n; ++position) {
    const TokenId is = position < n_prompt ? input.prompt[static_cast<size_t>(position)]
                                           : input.answer[static_cast<size_t>(position - n_prompt)];
    int32_t right = -1;
    bool is_first = true;
    for (size_t i = static_cast<size_t>(parent + 1); i < nodes.size() && right < 0; ++i) {
      if (nodes[i].parent != parent) continue;
      const bool was_right = nodes[i].token == is;
      const bool counts_as_first = std::exchange(is_first, false);
      (counts_as_first ? seq.confidence : seq.tree.runners_up).observe(nodes[i].sureness, was_right);
      (counts_as_first ? drafting_.pair() : runner_up_).observe(was_right);
      if (was_right) right = static_cast<int32_t>(i);
    }
    if (right < 0) break;
    parent = right;
  }
  seq.tree.clear();
}

// ---- growth --------------------------------------------------------------------------------------------------------

void TreeDrafting::begin(std::vector<DraftLane>& lanes, const DraftChoice& choice) {
  roots_.clear();
  for (DraftLane& lane : lanes) {
    DraftTree& tree = lane.seq->tree;
    tree.clear();
    tree.n_laws = 1;
    const int32_t n = lane.proposal->input.max_drafts;
    if (!options_.places.empty()) {
      const auto n_places = std::min(static_cast<std::ptrdiff_t>(n), std::ssize(options_.places));
      tree.places.assign(options_.places.begin(), options_.places.begin() + n_places);
    } else if (lane.is_pinned) {
      tree.places = fixed_tree(n, options_.branches, options_.width, options_.depth);
    }
    lane.n_wanted = tree.places.empty() ? wanted(lane, choice) : count_after(tree.places, -1);
    roots_.push_back({.seq = lane.seq, .proposal = lane.proposal, .is_pinned = lane.is_pinned});
  }
}

// One token, unless a second might pay off. If it does not, nothing more is learned about this sequence's runners-up,
// and the next sequence starts with the overall rate.
int32_t TreeDrafting::wanted(const DraftLane& lane, const DraftChoice& choice) const {
  const DraftConfidence &first = lane.seq->confidence, &second = lane.seq->tree.runners_up;
  const float likely = lane.likely * (1 - first.of_next()) * second.of_next();
  return choice.raises(static_cast<double>(likely), drafting_.prices().row) ? options_.branches : 1;
}

void TreeDrafting::grow(std::vector<DraftLane>& lanes, const DraftChoice& choice) {
  next_.clear();
  for (const Root& root : roots_) {
    const size_t first_node = root.seq->tree.nodes.size();
    for (const DraftLane& lane : lanes) {
      if (lane.seq == root.seq) take(lane);
    }
    add_lanes(root, first_node, choice, next_);
  }
  lanes.swap(next_);
}

void TreeDrafting::take(const DraftLane& lane) {
  DraftTree& tree = lane.seq->tree;
  const int32_t place = lane.node < 0 ? -1 : tree.nodes[static_cast<size_t>(lane.node)].place;
  float left = lane.likely;  // probability that this place is reached and no earlier sibling is right
  int32_t rank = 0;
  for (DraftNode node : lane.drawn) {
    node.likely = left * (rank == 0 ? lane.seq->confidence : tree.runners_up).of(node.sureness);
    left -= node.likely;
    node.row = lane.row;
    const auto is_its = [&](const DraftPlace& p) { return p.parent == place && p.rank == rank; };
    const auto at = std::ranges::find_if(tree.places, is_its);
    if (at != tree.places.end()) node.place = static_cast<int32_t>(at - tree.places.begin());
    tree.nodes.push_back(node);
    ++rank;
  }
}

// Adds lanes for those nodes, from first_node on, that are worth expanding.
void TreeDrafting::add_lanes(const Root& root, size_t first_node, const DraftChoice& choice,
                             std::vector<DraftLane>& out) {
  DraftTree& tree = root.seq->tree;
  const bool grows = tree.places.empty();
  const auto n_tokens = static_cast<int32_t>(root.seq->tokens.size());
  const auto most = static_cast<size_t>(root.proposal->input.max_drafts);
  std::vector<float> likely;
  for (const DraftNode& node : tree.nodes) likely.push_back(node.likely);
  float least = 0;  // less likely nodes are not among the most that may be proposed
  if (likely.size() > most) {
    const auto last = likely.begin() + static_cast<std::ptrdiff_t>(most) - 1;
    std::ranges::nth_element(likely, last, std::greater<>());
    least = *last;
  }
  const size_t first_lane = out.size();
  for (size_t i = first_node; i < tree.nodes.size(); ++i) {
    const DraftNode& node = tree.nodes[i];
    if (!node.is_offered || n_tokens + node.depth > drafting_.options().context_len) continue;
    DraftLane lane = {.seq = root.seq,
                      .proposal = root.proposal,
                      .likely = node.likely,
                      .n_drafts = node.depth,
                      .node = static_cast<int32_t>(i),
                      .n_tokens = 1,
                      .is_pinned = root.is_pinned};
    lane.n_wanted = grows ? wanted(lane, choice) : count_after(tree.places, node.place);
    const bool is_dropped =
        grows ? node.likely < least || node.depth >= static_cast<int32_t>(most) : node.place < 0 || lane.n_wanted == 0;
    if (!is_dropped) out.push_back(lane);
  }
  const auto begin = out.begin() + static_cast<std::ptrdiff_t>(first_lane);
  if (grows) {
    std::stable_sort(begin, out.end(), [](const auto& a, const auto& b) { return a.likely > b.likely; });
    out.resize(std::min(out.size(), first_lane + static_cast<size_t>(options_.width)));
  }
  for (auto lane = out.begin() + static_cast<std::ptrdiff_t>(first_lane); lane != out.end(); ++lane)
    lane->law = tree.n_laws++;
}

// Offers the likeliest nodes, parents before children; for a pinned tree all nodes, by their places.
void TreeDrafting::offer(const Root& root) {
  const std::vector<DraftNode>& nodes = root.seq->tree.nodes;
  std::vector<int32_t> order;
  for (size_t i = 0; i < nodes.size(); ++i) {
    const bool is_dropped = root.is_pinned && nodes[i].place < 0;
    if (nodes[i].is_offered && !is_dropped) order.push_back(static_cast<int32_t>(i));
  }
  if (order.empty()) return;  // drafts of other proposers stay
  const auto of = [&](int32_t i) -> const DraftNode& { return nodes[static_cast<size_t>(i)]; };
  std::ranges::stable_sort(order, [&](int32_t a, int32_t b) {
    return root.is_pinned ? of(a).place < of(b).place : of(a).likely > of(b).likely;
  });
  Drafts& drafts = *root.proposal->drafts;
  drafts.clear();
  std::vector<int32_t> index(nodes.size(), -1);
  for (const int32_t i : order) {
    if (drafts.size() == root.proposal->input.max_drafts) break;
    const int32_t parent = of(i).parent < 0 ? -1 : index[static_cast<size_t>(of(i).parent)];
    if (parent < 0 && of(i).parent >= 0) continue;  // its parent is not offered
    index[static_cast<size_t>(i)] = drafts.size();
    drafts.add(of(i).token, parent, root.is_pinned ? 1 : of(i).likely, of(i).q, true);
  }
}

}  // namespace ibid
