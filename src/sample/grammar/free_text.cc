#include "sample/grammar/free_text.h"

#include <array>

namespace ibid::grammar {
namespace {

constexpr uint32_t kNone = ~0u;

struct Node {
  std::array<uint32_t, 256> next;
  uint32_t fails_to = 0;
  std::vector<uint32_t> words;  // that end here
  bool is_excluded = false;
};

}  // namespace

ExprId free_text(const FreeText& text, Grammar& grammar) {
  Held held(grammar.fuel());
  std::vector<Node> nodes(1);
  nodes[0].next.fill(kNone);
  auto add = [&](const std::string& word) -> Node* {
    uint32_t at = 0;
    for (char c : word) {
      const uint32_t known = nodes[at].next[static_cast<uint8_t>(c)];
      if (known != kNone) {
        at = known;
        continue;
      }
      if (!grammar.fuel().burn(256) || !make_room(nodes, 1, held)) return nullptr;
      at = nodes[at].next[static_cast<uint8_t>(c)] = static_cast<uint32_t>(nodes.size());
      nodes.emplace_back();
      nodes.back().next.fill(kNone);
    }
    return &nodes[at];
  };
  for (uint32_t w = 0; w < text.words.size(); ++w) {
    Node* end = add(text.words[w].text);
    if (end == nullptr) return grammar.nothing();
    end->words.push_back(w);
  }
  for (const std::string& word : text.excluded) {
    Node* end = add(word);
    if (end == nullptr) return grammar.nothing();
    end->is_excluded = true;
  }
  std::vector<uint32_t> order;
  for (uint32_t& next : nodes[0].next) {
    if (next == kNone) {
      next = 0;
    } else {
      order.push_back(next);
    }
  }
  for (size_t i = 0; i < order.size(); ++i) {
    for (size_t b = 0; b < 256; ++b) {
      uint32_t& next = nodes[order[i]].next[b];
      const uint32_t other = nodes[nodes[order[i]].fails_to].next[b];
      if (next == kNone) {
        next = other;
        continue;
      }
      Node& node = nodes[next];
      node.fails_to = other;
      if (!held.add(8 * static_cast<int64_t>(nodes[other].words.size()))) return grammar.nothing();
      node.words.insert(node.words.end(), nodes[other].words.begin(), nodes[other].words.end());
      node.is_excluded |= nodes[other].is_excluded;
      order.push_back(next);
      if (!grammar.fuel().burn(static_cast<int64_t>(node.words.size()))) return grammar.nothing();
    }
  }
  // Before the first word and after it are two copies where they differ.
  const auto n = static_cast<uint32_t>(nodes.size());
  const bool is_twice = text.at_least_one && !text.stops_after_first;
  Graph graph;
  graph.n_states = n * (is_twice ? 2 : 1) + 1;
  const uint32_t end = graph.n_states - 1;
  for (uint32_t copy = 0; copy < (is_twice ? 2u : 1u); ++copy) {
    const uint32_t base = copy * n;
    const uint32_t following = text.stops_after_first ? end : is_twice ? n : 0;
    for (uint32_t i = 0; i < n; ++i) {
      if (nodes[i].is_excluded) continue;
      if (!nodes[i].words.empty()) {
        std::vector<ExprId> then;
        for (uint32_t w : nodes[i].words) then.push_back(text.words[w].then);
        graph.edges.push_back({base + i, following, 0, 0, grammar.choice(std::move(then))});
        continue;
      }
      if (!text.at_least_one || copy > 0) graph.accepting.push_back(base + i);
      for (uint32_t lo = 0, hi = 0; lo < 256; lo = ++hi) {
        const uint32_t to = nodes[i].next[lo];
        while (hi < 255 && nodes[i].next[hi + 1] == to) ++hi;
        if (!make_room(graph.edges, 1, held)) return grammar.nothing();
        graph.edges.push_back({base + i, base + to, static_cast<uint8_t>(lo), static_cast<uint8_t>(hi)});
      }
    }
  }
  if (text.stops_after_first) graph.accepting.push_back(end);
  nodes = {}, held = Held();
  return grammar.graph(std::move(graph));
}

}  // namespace ibid::grammar
