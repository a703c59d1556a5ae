#include "text/output/stop_matcher.h"

#include <algorithm>

#include "base/utf8.h"

namespace ibid {

Result<std::shared_ptr<const StopSet>> StopSet::compile(std::vector<std::string> strings, std::vector<TokenId> ids,
                                                        bool include_stop) {
  if (strings.size() > kMaxStrings) {
    return invalid("There are " + std::to_string(strings.size()) + " stop strings; at most " +
                       std::to_string(kMaxStrings) + " are served.",
                   "stop");
  }
  size_t n_bytes = 0;
  for (size_t i = 0; i < strings.size(); ++i) {
    std::string where = "stop[" + std::to_string(i) + "]";
    if (strings[i].empty()) {
      return invalid("Stop string " + std::to_string(i) + " is empty; it would end every answer at once. Leave it out.",
                     where);
    }
    if (!utf8::is_valid(strings[i])) {
      return invalid("Stop string " + std::to_string(i) + " is not UTF-8; answers are, so it could never be found.",
                     where);
    }
    n_bytes += strings[i].size();
    if (n_bytes > kMaxBytes) {
      return invalid("The stop strings have more than " + std::to_string(kMaxBytes) + " bytes together.", "stop");
    }
  }

  std::shared_ptr<StopSet> set(new StopSet);
  set->strings_ = std::move(strings);
  set->ids_ = std::move(ids);
  set->include_stop_ = include_stop;
  std::sort(set->ids_.begin(), set->ids_.end());

  // The trie, built from the strings in sorted order: a node's children then come in ascending order, and each node
  // lies on the path of the string inserted last, so no child ever has to be looked up.
  std::vector<int32_t> order(set->strings_.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int32_t>(i);
  std::stable_sort(order.begin(), order.end(),
                   [&](int32_t a, int32_t b) { return set->strings_[a] < set->strings_[b]; });
  std::vector<Node>& nodes = set->nodes_;
  nodes.emplace_back();
  struct Link {
    int32_t parent, node;
    uint8_t byte;
  };
  std::vector<Link> links;
  std::vector<int32_t> path = {0};
  std::string_view previous;
  for (int32_t index : order) {
    std::string_view text = set->strings_[index];
    size_t common = 0;
    while (common < text.size() && common < previous.size() && text[common] == previous[common]) ++common;
    path.resize(common + 1);
    for (size_t i = common; i < text.size(); ++i) {
      auto node = static_cast<int32_t>(nodes.size());
      nodes.push_back({.string = index, .depth = static_cast<int32_t>(i + 1)});
      links.push_back({path.back(), node, static_cast<uint8_t>(text[i])});
      path.push_back(node);
    }
    if (nodes[path.back()].stop < 0) nodes[path.back()].stop = index;
    previous = text;
  }
  for (const Link& link : links) ++nodes[link.parent].n_edges;
  int32_t next = 0;
  for (Node& node : nodes) {
    node.first_edge = next;
    next += node.n_edges;
    node.n_edges = 0;
  }
  set->edges_.resize(links.size());
  for (const Link& link : links) {
    Node& parent = nodes[link.parent];
    set->edges_[parent.first_edge + parent.n_edges++] = {link.byte, link.node};
    if (link.parent == 0) set->root_[link.byte] = link.node;
  }

  // Failure links by ascending depth.
  std::stable_sort(links.begin(), links.end(),
                   [&](const Link& a, const Link& b) { return nodes[a.node].depth < nodes[b.node].depth; });
  for (const Link& link : links) {
    Node& node = nodes[link.node];
    node.fail = link.parent == 0 ? 0 : set->step(nodes[link.parent].fail, link.byte);
    if (node.stop < 0) node.stop = nodes[node.fail].stop;
  }
  return std::shared_ptr<const StopSet>(std::move(set));
}

bool StopSet::is_stop(TokenId id) const { return std::binary_search(ids_.begin(), ids_.end(), id); }

int32_t StopSet::child(int32_t node, uint8_t byte) const {
  const Node& n = nodes_[node];
  auto first = edges_.begin() + n.first_edge;
  auto last = first + n.n_edges;
  auto it = std::lower_bound(first, last, byte, [](const Edge& edge, uint8_t b) { return edge.byte < b; });
  return it != last && it->byte == byte ? it->node : -1;
}

int32_t StopSet::step(int32_t node, uint8_t byte) const {
  while (node != 0) {
    if (int32_t next = child(node, byte); next >= 0) return next;
    node = nodes_[node].fail;
  }
  return root_[byte];
}

std::string_view StopSet::spelling(int32_t node) const {
  if (node == 0) return {};
  return std::string_view(strings_[nodes_[node].string]).substr(0, nodes_[node].depth);
}

std::optional<int> StopMatcher::push(std::string_view text, std::string& out) {
  if (stopped_) return std::nullopt;
  std::string_view before = held();
  int32_t node = node_;
  size_t n_read = 0;
  int32_t stop = -1;
  while (n_read < text.size() && stop < 0) {
    node = set_->step(node, static_cast<uint8_t>(text[n_read++]));
    stop = set_->nodes_[node].stop;
  }
  // All of held + read may go, but its last n_kept bytes.
  size_t n_kept = set_->nodes_[node].depth;
  if (stop >= 0) n_kept = set_->include_stop_ ? 0 : set_->strings_[stop].size();
  size_t n_sent = before.size() + n_read - n_kept;
  out.append(before.substr(0, n_sent));
  if (n_sent > before.size()) out.append(text.substr(0, n_sent - before.size()));
  if (stop < 0) {
    node_ = node;
    return std::nullopt;
  }
  node_ = 0;
  stopped_ = true;
  return stop;
}

void StopMatcher::finish(std::string& out) {
  out.append(held());
  node_ = 0;
  stopped_ = true;
}

}  // namespace ibid
