#include "sample/grammar/code_dfa.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <unordered_map>
#include <utility>

#include "base/utf8.h"

namespace ibid::grammar {
namespace {

constexpr int64_t kBytesPerNode = 32 + 32 + 16;  // of a hash table: the node and its bucket, which are more at times

struct SetHash {
  size_t operator()(const std::vector<uint32_t>& states) const {
    uint64_t h = 1;
    for (uint32_t s : states) h = (h ^ s) * 0x9E3779B97F4A7C15u, h ^= h >> 32;
    return h;
  }
};

// Rabin and Scott 1959, with the two kinds of edges that only a text's ends let through.
class Subsets {
 public:
  Subsets(const CodeNfa& nfa, Fuel& fuel) : nfa_(nfa), fuel_(fuel), held_(fuel) {
    const int64_t bytes = int64_t{nfa.n_states} * 12 + block(nfa.edges.size() * sizeof(CodeNfa::Edge));
    if (!fuel.has_room(bytes)) return;
    held_.add(bytes);
    first_.assign(nfa.n_states + 1, 0);
    mark_.assign(nfa.n_states, 0);
    for (const CodeNfa::Edge& e : nfa.edges) ++first_[e.from + 1];
    for (size_t i = 1; i < first_.size(); ++i) first_[i] += first_[i - 1];
    sorted_.resize(nfa.edges.size());
    std::vector<uint32_t> at(first_.begin(), first_.end() - 1);
    for (const CodeNfa::Edge& e : nfa.edges) sorted_[at[e.from]++] = e;
  }

  // states may hold some more than once; ascending and each once when it returns.
  void close(std::vector<uint32_t>& states, bool at_begin, bool at_end) {
    ++epoch_;
    std::erase_if(states, [this](uint32_t s) { return std::exchange(mark_[s], epoch_) == epoch_; });
    size_t n_edges = 0;
    for (size_t i = 0; i < states.size(); ++i) {
      n_edges += first_[states[i] + 1] - first_[states[i]];
      for (uint32_t e = first_[states[i]]; e < first_[states[i] + 1]; ++e) {
        const CodeNfa::Edge& edge = sorted_[e];
        const bool is_open = edge.kind == CodeNfa::kEmpty || (edge.kind == CodeNfa::kBegin && at_begin) ||
                             (edge.kind == CodeNfa::kEnd && at_end);
        if (!is_open || mark_[edge.to] == epoch_) continue;
        mark_[edge.to] = epoch_;
        states.push_back(edge.to);
      }
    }
    fuel_.burn(static_cast<int64_t>(states.size() + n_edges / 8) + 1);
    sort_marked(states);
  }

  bool accepts(std::vector<uint32_t> states, bool at_begin) {
    close(states, at_begin, true);
    return std::binary_search(states.begin(), states.end(), nfa_.accept);
  }

  std::span<const CodeNfa::Edge> edges(uint32_t state) const {
    return {sorted_.data() + first_[state], sorted_.data() + first_[state + 1]};
  }

 private:
  // For many states close to one another the marks give the order.
  void sort_marked(std::vector<uint32_t>& states) const {
    const auto [least, most] = std::ranges::minmax(states);
    if ((most - least) / 8 >= states.size()) {
      std::sort(states.begin(), states.end());
      return;
    }
    size_t n = 0;
    for (uint32_t s = least; s <= most; ++s)
      if (mark_[s] == epoch_) states[n++] = s;
  }

  const CodeNfa& nfa_;
  Fuel& fuel_;
  Held held_;
  std::vector<uint32_t> first_;
  std::vector<CodeNfa::Edge> sorted_;
  std::vector<uint32_t> mark_;
  uint32_t epoch_ = 0;
};

struct RangeTo {
  uint32_t lo, hi, to;
};

}  // namespace

void CodeDfa::begin_state(bool accepts) {
  accepts_.push_back(accepts);
  first_.push_back(static_cast<uint32_t>(edges_.size()));
}

void CodeDfa::add_edge(uint32_t lo, uint32_t hi, uint32_t to) {
  if (edges_.size() > first_[first_.size() - 2] && edges_.back().to == to && edges_.back().hi + 1 == lo) {
    edges_.back().hi = hi;
  } else {
    edges_.push_back({lo, hi, to});
  }
  first_.back() = static_cast<uint32_t>(edges_.size());
}

Result<CodeDfa> CodeDfa::copy(Fuel& fuel) const {
  CodeDfa made(fuel);
  if (!fuel.has_room(block(first_.size() * sizeof(uint32_t)) + block(accepts_.size()))) return out_of_fuel();
  if (!made.make_room(edges_.size())) return out_of_fuel();
  made.held_.add(block(first_.size() * sizeof(uint32_t)) + block(accepts_.size()));
  made.first_ = first_, made.edges_ = edges_, made.accepts_ = accepts_;
  return made;
}

CodeDfa CodeDfa::all() {
  CodeDfa made;
  made.begin_state(true);
  const CodeSet any = CodeSet::all();
  for (CodeRange r : any.ranges()) made.add_edge(r.lo, r.hi, 0);
  return made;
}

Result<CodeDfa> CodeDfa::length(uint32_t min, uint32_t max, Fuel& fuel) {
  CodeDfa made(fuel);
  const uint32_t last = max == kUnbounded ? min : max;
  const CodeSet any = CodeSet::all();
  if (!fuel.burn(static_cast<int64_t>(last) * 6)) return out_of_fuel();
  for (uint32_t n = 0; n <= last; ++n) {
    if (!made.make_room(any.ranges().size())) return out_of_fuel();
    made.begin_state(n >= min);
    if (n == last && max != kUnbounded) break;
    for (CodeRange r : any.ranges()) made.add_edge(r.lo, r.hi, std::min(n + 1, last));
  }
  return made;
}

Result<CodeDfa> CodeDfa::one_of(std::span<const std::string_view> texts, Fuel& fuel) {
  Held held(fuel);
  std::vector<std::u32string> codes;
  for (std::string_view text : texts) {
    const int64_t bytes = block((text.size() + 1) * sizeof(char32_t));
    if (!fuel.burn(16 + static_cast<int64_t>(text.size()) * 40) || !grammar::make_room(codes, 1, held) ||
        !held.add(bytes))
      return out_of_fuel();
    std::u32string& code = codes.emplace_back();
    code.reserve(text.size());
    for (size_t i = 0; i < text.size();) {
      const utf8::CodePoint c = utf8::decode(text.data() + i, text.data() + text.size());
      code += static_cast<char32_t>(c.value);
      i += c.len;
    }
  }
  std::sort(codes.begin(), codes.end());
  // A trie, breadth first: each state is a range of texts that begin alike.
  struct Node {
    size_t begin, end, depth;
  };
  CodeDfa made(fuel);
  std::vector<Node> nodes = {{0, codes.size(), 0}};
  for (size_t n = 0; n < nodes.size(); ++n) {
    auto [at, end, depth] = nodes[n];
    if (!made.make_room(0)) return out_of_fuel();
    made.begin_state(at < end && codes[at].size() == depth);
    while (at < end && codes[at].size() == depth) ++at;
    while (at < end) {
      const char32_t c = codes[at][depth];
      const size_t begin = at;
      while (at < end && codes[at][depth] == c) ++at;
      if (!made.make_room(1) || !grammar::make_room(nodes, 1, held)) return out_of_fuel();
      made.add_edge(c, c, static_cast<uint32_t>(nodes.size()));
      nodes.push_back({begin, at, depth + 1});
    }
  }
  return made;
}

Result<CodeDfa> CodeDfa::make(const CodeNfa& nfa, Fuel& fuel) {
  if (!fuel.burn(static_cast<int64_t>(nfa.edges.size()) * 4 + nfa.n_states)) return out_of_fuel();
  Subsets subsets(nfa, fuel);
  if (fuel.is_empty()) return out_of_fuel();
  CodeDfa made(fuel);
  Held held(fuel);
  std::unordered_map<std::vector<uint32_t>, uint32_t, SetHash> ids;
  std::vector<const std::vector<uint32_t>*> queue;
  std::vector<uint32_t> start = {0};
  subsets.close(start, true, false);
  queue.push_back(&start);  // a state of its own: only here the text begins
  std::vector<RangeTo> ranges;
  std::vector<uint32_t> cuts, targets;
  if (!held.add(block(nfa.sets.size() * sizeof(size_t)))) return out_of_fuel();
  std::vector<size_t> cut_by(nfa.sets.size());  // one more than the last state that it cut the codes of
  for (size_t from = 0; from < queue.size(); ++from) {
    const std::vector<uint32_t> states = *queue[from];
    if (!made.make_room(0)) return out_of_fuel();
    made.begin_state(subsets.accepts(states, from == 0));
    ranges.clear(), cuts.clear();
    for (uint32_t s : states)
      for (const CodeNfa::Edge& e : subsets.edges(s))
        if (e.kind == CodeNfa::kSet) {
          const size_t n = nfa.sets[e.set].ranges().size();
          if (!grammar::make_room(ranges, n, held) || !grammar::make_room(cuts, 2 * n, held)) return out_of_fuel();
          for (CodeRange r : nfa.sets[e.set].ranges()) {
            ranges.push_back({r.lo, r.hi, e.to});
            if (cut_by[e.set] <= from) cuts.push_back(r.lo), cuts.push_back(r.hi + 1);
          }
          cut_by[e.set] = from + 1;
        }
    if (!fuel.burn(static_cast<int64_t>(ranges.size()) * 3 + 8)) return out_of_fuel();
    std::sort(cuts.begin(), cuts.end());
    cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
    std::sort(ranges.begin(), ranges.end(), [](const RangeTo& a, const RangeTo& b) { return a.lo < b.lo; });
    std::vector<RangeTo> open;
    size_t next = 0;
    for (size_t i = 0; i + 1 < cuts.size(); ++i) {
      std::erase_if(open, [&](const RangeTo& r) { return r.hi < cuts[i]; });
      for (; next < ranges.size() && ranges[next].lo <= cuts[i]; ++next) open.push_back(ranges[next]);
      if (open.empty()) continue;
      targets.clear();
      for (const RangeTo& r : open) targets.push_back(r.to);
      subsets.close(targets, false, false);
      auto [at, is_new] = ids.try_emplace(targets, static_cast<uint32_t>(queue.size()));
      if (!fuel.burn((is_new ? 24 : 2) + static_cast<int64_t>(targets.size() + open.size() / 8))) return out_of_fuel();
      if (is_new) {
        if (!grammar::make_room(queue, 1, held) || !held.add(kBytesPerNode + block(targets.size() * sizeof(uint32_t))))
          return out_of_fuel();
        queue.push_back(&at->first);
      }
      if (!made.make_room(1)) return out_of_fuel();
      made.add_edge(cuts[i], cuts[i + 1] - 1, at->second);
    }
  }
  if (!made.trim(fuel) || !made.merge_twins(fuel)) return out_of_fuel();
  return made;
}

Result<CodeDfa> CodeDfa::combine(const CodeDfa& a, const CodeDfa& b, How how, Fuel& fuel) {
  CodeDfa made(fuel);
  Held held(fuel);
  std::unordered_map<uint64_t, uint32_t> ids;
  std::vector<std::pair<uint32_t, uint32_t>> queue;
  auto id_of = [&](uint32_t x, uint32_t y) {
    auto [at, is_new] = ids.try_emplace(static_cast<uint64_t>(x) << 32 | y, static_cast<uint32_t>(queue.size()));
    if (is_new && held.add(kBytesPerNode) && grammar::make_room(queue, 1, held)) queue.push_back({x, y});
    return at->second;
  };
  id_of(0, 0);
  for (size_t from = 0; from < queue.size(); ++from) {
    const auto [x, y] = queue[from];
    const bool in_a = x != kGone && a.accepts(x), in_b = y != kGone && b.accepts(y);
    if (!made.make_room(0)) return out_of_fuel();
    made.begin_state(how == How::kBoth ? in_a && in_b : how == How::kEither ? in_a || in_b : in_a && !in_b);
    const auto of_a = x == kGone ? std::span<const Edge>() : a.edges(x);
    const auto of_b = y == kGone ? std::span<const Edge>() : b.edges(y);
    if (!fuel.burn(24 + 2 * static_cast<int64_t>(of_a.size() + of_b.size()))) return out_of_fuel();
    each_piece(of_a, of_b, [&](uint32_t lo, uint32_t hi, uint32_t to_a, uint32_t to_b) {
      const bool goes_on = how == How::kBoth     ? to_a != kGone && to_b != kGone
                           : how == How::kEither ? to_a != kGone || to_b != kGone
                                                 : to_a != kGone;
      if (goes_on && made.make_room(1)) made.add_edge(lo, hi, id_of(to_a, to_b));
    });
    if (fuel.is_empty()) return out_of_fuel();
  }
  if (!made.trim(fuel)) return out_of_fuel();
  return made;
}

// Keeps the first state and those from which an end is within reach.
bool CodeDfa::trim(Fuel& fuel) {
  const uint32_t n = n_states();
  if (!fuel.burn(static_cast<int64_t>(edges_.size()) * 2 + n * 2)) return false;
  Held held(fuel);
  const int64_t bytes = int64_t{n} * 17 + static_cast<int64_t>(edges_.size()) * 4;
  if (!fuel.has_room(bytes)) return false;
  held.add(bytes);
  std::vector<uint32_t> first(n + 1, 0), back(edges_.size()), ahead;
  for (const Edge& e : edges_) ++first[e.to + 1];
  for (uint32_t s = 0; s < n; ++s) first[s + 1] += first[s];
  std::vector<uint32_t> at(first.begin(), first.end() - 1);
  for (uint32_t s = 0; s < n; ++s)
    for (const Edge& e : edges(s)) back[at[e.to]++] = s;
  std::vector<uint8_t> lives(n, 0);
  for (uint32_t s = 0; s < n; ++s)
    if (accepts_[s]) lives[s] = 1, ahead.push_back(s);
  while (!ahead.empty()) {
    const uint32_t s = ahead.back();
    ahead.pop_back();
    for (uint32_t i = first[s]; i < first[s + 1]; ++i)
      if (!lives[back[i]]) lives[back[i]] = 1, ahead.push_back(back[i]);
  }
  std::vector<uint32_t> id(n, kGone);
  uint32_t n_kept = 0;
  for (uint32_t s = 0; s < n; ++s)
    if (lives[s] || s == 0) id[s] = n_kept++;
  if (n_kept == n) return true;
  CodeDfa kept(fuel);
  if (!kept.make_room(edges_.size())) return false;
  for (uint32_t s = 0; s < n; ++s) {
    if (id[s] == kGone) continue;
    if (!kept.make_room(0)) return false;
    kept.begin_state(accepts_[s]);
    for (const Edge& e : edges(s))
      if (lives[e.to]) kept.add_edge(e.lo, e.hi, id[e.to]);
  }
  *this = std::move(kept);
  return true;
}

// States from which the same edges lead to the same states are one: not all that could be (Hopcroft 1971), but what
// subsets leave of repeats and choices, at the cost of looking at each edge a few times.
bool CodeDfa::merge_twins(Fuel& fuel, int n_passes) {
  constexpr int kMaxRounds = 16;
  const uint32_t n = n_states();
  Held held(fuel);
  if (!fuel.has_room(int64_t{n} * 24)) return false;
  held.add(int64_t{n} * 24);
  std::vector<uint32_t> is(n);
  std::iota(is.begin(), is.end(), 0u);
  std::vector<std::pair<uint64_t, uint32_t>> by_hash(n);
  bool has_merged = false;
  for (int round = 0; round < kMaxRounds; ++round) {
    if (!fuel.burn(static_cast<int64_t>(edges_.size()) / 2 + n)) return false;
    for (uint32_t s = 0; s < n; ++s) {
      uint64_t h = accepts_[s];
      for (const Edge& e : edges(s)) {
        h = (h ^ (static_cast<uint64_t>(e.lo) << 32 | is[e.to])) * 0x9E3779B97F4A7C15u;
        h = (h ^ (h >> 32) ^ e.hi) * 0xD6E8FEB86659FD93u;
      }
      by_hash[s] = {is[s] == s ? h ^ h >> 32 : 0, s};
    }
    std::sort(by_hash.begin(), by_hash.end());
    const auto are_twins = [&](uint32_t a, uint32_t b) {
      return accepts_[a] == accepts_[b] && std::ranges::equal(edges(a), edges(b), [&](const Edge& x, const Edge& y) {
               return x.lo == y.lo && x.hi == y.hi && is[x.to] == is[y.to];
             });
    };
    bool merges = false;
    for (uint32_t i = 1, first = 0; i < n; ++i) {
      if (by_hash[i].first != by_hash[first].first) {
        first = i;
        continue;
      }
      const uint32_t s = by_hash[i].second, twin = by_hash[first].second;  // the lower one
      if (is[s] == s && is[twin] == twin && are_twins(s, twin)) is[s] = twin, merges = true;
    }
    if (!merges) break;
    has_merged = true;
    for (uint32_t s = 0; s < n; ++s) is[s] = is[is[s]];
  }
  if (!has_merged) return true;
  std::vector<uint32_t> id(n);
  uint32_t n_kept = 0;
  for (uint32_t s = 0; s < n; ++s)
    if (is[s] == s) id[s] = n_kept++;
  CodeDfa kept(fuel);
  if (!kept.make_room(edges_.size())) return false;
  for (uint32_t s = 0; s < n; ++s) {
    if (is[s] != s) continue;
    if (!kept.make_room(0)) return false;
    kept.begin_state(accepts_[s]);
    for (const Edge& e : edges(s)) kept.add_edge(e.lo, e.hi, id[is[e.to]]);
  }
  *this = std::move(kept);
  return n_passes == 1 || merge_twins(fuel, n_passes - 1);  // edges may have become one
}

bool CodeDfa::accepts(std::string_view text) const {
  uint32_t state = 0;
  for (size_t i = 0; i < text.size();) {
    const utf8::CodePoint c = utf8::decode(text.data() + i, text.data() + text.size());
    const auto all = edges(state);
    auto after = std::upper_bound(all.begin(), all.end(), c.value, [](uint32_t v, const Edge& e) { return v < e.lo; });
    if (after == all.begin() || c.value > std::prev(after)->hi) return false;
    state = std::prev(after)->to;
    i += c.len;
  }
  return accepts(state);
}

bool CodeDfa::is_empty() const {
  return std::none_of(accepts_.begin(), accepts_.end(), [](uint8_t a) { return a; });
}

bool CodeDfa::is_all() const {
  const CodeDfa whole = all();
  return n_states() == 1 && accepts_[0] && edges_.size() == whole.edges_.size() &&
         std::equal(edges_.begin(), edges_.end(), whole.edges_.begin(),
                    [](const Edge& x, const Edge& y) { return x.lo == y.lo && x.hi == y.hi; });
}

uint32_t CodeGraph::hop(uint8_t lo, uint8_t hi, uint32_t to) {
  auto [at, is_new] = hops_.try_emplace(static_cast<uint64_t>(to) << 16 | static_cast<uint64_t>(lo) << 8 | hi, 0);
  if (is_new) {
    at->second = add_state();
    add({at->second, to, lo, hi});
    fuel_.burn(12);
    held_.add(kBytesPerNode);
  }
  return at->second;
}

void CodeGraph::add_code_points(uint32_t from, uint32_t lo, uint32_t hi, uint32_t to) {
  if (lo > hi) return;
  each_utf8_piece(lo, hi, [&](const ByteRange* piece, int n) {
    uint32_t at = to;
    for (int i = n - 1; i > 0; --i) at = hop(piece[i].lo, piece[i].hi, at);
    add({from, at, piece[0].lo, piece[0].hi});
  });
}

ExprId CodeDfa::spell(Grammar& grammar, Spelling spelling) const {
  return grammar.graph(spelled(spelling, grammar.fuel()));
}

Graph CodeDfa::spelled(Spelling spelling, Fuel& fuel) const {
  CodeGraph out(n_states(), fuel);
  Graph& graph = out.graph();
  auto text_to = [&](uint32_t from, std::string_view text, uint32_t to) {
    for (size_t i = text.size() - 1; i > 0; --i) {
      const auto b = static_cast<uint8_t>(text[i]);
      to = out.hop(b, b, to);
    }
    out.add(from, static_cast<uint8_t>(text[0]), to);
  };
  static constexpr char kHex[] = "0123456789abcdef";
  // After a backslash, all that are always escaped but the quote and the backslash.
  std::unordered_map<uint32_t, uint32_t> escapes;
  auto escape_to = [&](uint32_t to) {
    auto [at, is_new] = escapes.try_emplace(to, graph.n_states);
    if (!is_new) return at->second;
    const uint32_t begin = graph.n_states++, zeros = graph.n_states++, low = graph.n_states++, high = graph.n_states++;
    for (char c : std::string_view("btnfr")) out.add(begin, static_cast<uint8_t>(c), to);
    out.add(begin, 'u', out.hop('0', '0', out.hop('0', '0', zeros)));
    out.add(zeros, '0', low);
    out.add(zeros, '1', high);
    for (uint32_t c = 0; c < 0x20; ++c) {
      if (c == 8 || c == 9 || c == 10 || c == 12 || c == 13) continue;
      out.add(c < 16 ? low : high, static_cast<uint8_t>(kHex[c & 15]), to);
    }
    fuel.burn(120);
    return begin;
  };
  for (uint32_t s = 0; s < n_states(); ++s) {
    if (accepts_[s]) graph.accepting.push_back(s);
    for (const Edge& e : edges(s)) {
      if (!fuel.burn(12)) return std::move(graph);
      if (spelling == Spelling::kPlain) {
        out.add_code_points(s, e.lo, e.hi, e.to);
        continue;
      }
      const bool has_all = e.lo == 0 && e.hi >= 0x1F;
      if (has_all) out.add(s, '\\', escape_to(e.to));
      for (uint32_t c = e.lo; !has_all && c < 0x20 && c <= e.hi; ++c) {
        const char* named = c == 8    ? "\\b"
                            : c == 9  ? "\\t"
                            : c == 10 ? "\\n"
                            : c == 12 ? "\\f"
                            : c == 13 ? "\\r"
                                      : nullptr;
        const char spelled[] = {'\\', 'u', '0', '0', kHex[c >> 4], kHex[c & 15], '\0'};
        text_to(s, named != nullptr ? named : spelled, e.to);
      }
      if (e.lo <= '"' && '"' <= e.hi) text_to(s, "\\\"", e.to);
      if (e.lo <= '\\' && '\\' <= e.hi) text_to(s, "\\\\", e.to);
      out.add_code_points(s, std::max<uint32_t>(e.lo, 0x20), std::min<uint32_t>(e.hi, '"' - 1), e.to);
      out.add_code_points(s, std::max<uint32_t>(e.lo, '"' + 1), std::min<uint32_t>(e.hi, '\\' - 1), e.to);
      out.add_code_points(s, std::max<uint32_t>(e.lo, '\\' + 1), e.hi, e.to);
    }
  }
  return std::move(graph);
}

}  // namespace ibid::grammar
