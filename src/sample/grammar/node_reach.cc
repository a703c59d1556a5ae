#include "sample/grammar/node_reach.h"

#include <algorithm>
#include <array>
#include <vector>

namespace ibid::grammar {
namespace {

constexpr size_t kMaxSearch = 64;  // nodes

// What may follow inside a code point of UTF-8 (Unicode 16, table 3-7).
struct Phase {
  uint8_t lo, hi, next;
};
using Phases = std::vector<Phase>;
const std::vector<Phases>& phases() {
  static const std::vector<Phases> table = {{},
                                            {{0x80, 0xBF, 0}},  // 1: one more
                                            {{0x80, 0xBF, 1}},  // 2: two more
                                            {{0x80, 0xBF, 2}},  // 3: three more
                                            {{0xA0, 0xBF, 1}},  // 4: after E0
                                            {{0x80, 0x9F, 1}},  // 5: after ED
                                            {{0x90, 0xBF, 2}},  // 6: after F0
                                            {{0x80, 0x8F, 2}},  // 7: after F4
                                            // Without white space (is_far_space):
                                            {{0x80, 0x9F, 0}, {0xA1, 0xBF, 0}},                    // 8: after C2
                                            {{0x80, 0x99, 1}, {0x9A, 0x9A, 10}, {0x9B, 0xBF, 1}},  // 9: after E1
                                            {{0x81, 0xBF, 0}},  // 10: after E1 9A, E3 80
                                            {{0x80, 0x80, 12}, {0x81, 0x81, 13}, {0x82, 0xBF, 1}},  // 11: after E2
                                            {{0x8B, 0xA7, 0}, {0xAA, 0xAE, 0}, {0xB0, 0xBF, 0}},    // 12: after E2 80
                                            {{0x80, 0x9E, 0}, {0xA0, 0xBF, 0}},                     // 13: after E2 81
                                            {{0x80, 0x80, 10}, {0x81, 0xBF, 1}},                    // 14: after E3
                                            {{0x80, 0xBA, 1}, {0xBB, 0xBB, 16}, {0xBC, 0xBF, 1}},   // 15: after EF
                                            {{0x80, 0xBE, 0}},                                      // 16: after EF BB
                                            // White space alone:
                                            {{0xA0, 0xA0, 0}},                     // 17: after C2
                                            {{0x9A, 0x9A, 19}},                    // 18: after E1
                                            {{0x80, 0x80, 0}},                     // 19: after E1 9A, E3 80
                                            {{0x80, 0x80, 21}, {0x81, 0x81, 22}},  // 20: after E2
                                            {{0x80, 0x8A, 0}, {0xA8, 0xA9, 0}, {0xAF, 0xAF, 0}},  // 21: after E2 80
                                            {{0x9F, 0x9F, 0}},                                    // 22: after E2 81
                                            {{0x80, 0x80, 19}},                                   // 23: after E3
                                            {{0xBB, 0xBB, 25}},                                   // 24: after EF
                                            {{0xBF, 0xBF, 0}}};                                   // 25: after EF BB
  return table;
}
struct Lead {
  uint8_t lo, hi, phase;
};
constexpr std::array<Lead, 7> kLeads = {{{0xC2, 0xDF, 1},
                                         {0xE0, 0xE0, 4},
                                         {0xE1, 0xEC, 2},
                                         {0xED, 0xED, 5},
                                         {0xEE, 0xEF, 2},
                                         {0xF0, 0xF0, 6},
                                         {0xF1, 0xF3, 3}}};
constexpr Lead kLastLead = {0xF4, 0xF4, 7};
constexpr std::array<Lead, 13> kNonAsciiLeads = {{{0xC2, 0xC2, 8},
                                                  {0xC3, 0xDF, 1},
                                                  {0xE0, 0xE0, 4},
                                                  {0xE1, 0xE1, 9},
                                                  {0xE2, 0xE2, 11},
                                                  {0xE3, 0xE3, 14},
                                                  {0xE4, 0xEC, 2},
                                                  {0xED, 0xED, 5},
                                                  {0xEE, 0xEE, 2},
                                                  {0xEF, 0xEF, 15},
                                                  {0xF0, 0xF0, 6},
                                                  {0xF1, 0xF3, 3},
                                                  {0xF4, 0xF4, 7}}};
constexpr std::array<Lead, 5> kFarSpaceLeads = {
    {{0xC2, 0xC2, 17}, {0xE1, 0xE1, 18}, {0xE2, 0xE2, 20}, {0xE3, 0xE3, 23}, {0xEF, 0xEF, 24}}};

// The ranges of the bytes that begin a code point of a kind, with what follows.
std::vector<Lead> leads_of(size_t kind) {
  std::vector<Lead> leads;
  for (int b = 0; b < 0x80 && kind != kNonAscii; ++b) {
    if (!kind_has(kind, static_cast<uint8_t>(b))) continue;
    if (!leads.empty() && leads.back().hi + 1 == b) {
      leads.back().hi = static_cast<uint8_t>(b);
    } else {
      leads.push_back({static_cast<uint8_t>(b), static_cast<uint8_t>(b), 0});
    }
  }
  if (kind == kNonAscii) return {kNonAsciiLeads.begin(), kNonAsciiLeads.end()};
  if (kind == kFarSpace) return {kFarSpaceLeads.begin(), kFarSpaceLeads.end()};
  if (kind == kUnicode) {
    leads.insert(leads.end(), kLeads.begin(), kLeads.end());
    leads.push_back(kLastLead);
  }
  return leads;
}

const std::array<std::vector<Lead>, kFarSpace + 1>& all_leads() {
  static const auto leads = [] {
    std::array<std::vector<Lead>, kFarSpace + 1> all;
    for (size_t kind = 0; kind <= kFarSpace; ++kind) all[kind] = leads_of(kind);
    return all;
  }();
  return leads;
}

}  // namespace

Reach NodeReach::reach(uint32_t node, size_t kind) {
  const uint64_t key = static_cast<uint64_t>(node) << 4 | kind;
  auto known = reaches_.find(key);
  if (known != reaches_.end()) return known->second;
  Reach found;
  if (automaton_.is_counter(node)) {
    found = reach_of_counter(node, kind);
  } else {
    // What holds of all code points holds of each kind of them.
    if (kind != kUnicode) found = reach(node, kUnicode);
    if (kind == kUnicode || (found.none != 1 && found.all != kAllCodes)) found = search(node, kind);
  }
  reaches_.emplace(key, found);
  return found;
}

Step NodeReach::step(uint32_t node, size_t kind) {
  const uint64_t key = static_cast<uint64_t>(node) << 4 | kind;
  auto known = steps_.find(key);
  if (known != steps_.end()) return known->second;
  Step found{kNoNode, true};
  ahead_.assign(1, {node, 0});
  for (size_t i = 0; i < ahead_.size() && found.to != kManyNodes; ++i) {
    auto need = [&](uint32_t lo, uint32_t hi, uint8_t phase) {
      uint32_t covered = lo;
      for (const SymbolEdge& e : automaton_.edges(ahead_[i].node)) {
        if (e.hi < lo || e.lo > hi) continue;
        if (e.lo > covered && trie_.has_plain(covered, e.lo - 1u)) found.is_all = false;
        covered = std::max<uint32_t>(covered, e.hi + 1u);
        if (phase == 0) {
          found.to = found.to == kNoNode || found.to == e.to ? e.to : kManyNodes;
          continue;
        }
        if (automaton_.accepts(e.to) || !automaton_.calls(e.to).empty()) found.is_all = false;
        if (std::find(ahead_.begin(), ahead_.end(), At{e.to, phase}) == ahead_.end()) ahead_.push_back({e.to, phase});
      }
      if (covered <= hi && trie_.has_plain(covered, hi)) found.is_all = false;
    };
    const uint8_t phase = ahead_[i].phase;
    if (phase == 0) {
      for (const Lead& lead : all_leads()[kind]) need(lead.lo, lead.hi, lead.phase);
    } else {
      for (const Phase& p : phases()[phase]) need(p.lo, p.hi, p.next);
    }
    if (ahead_.size() > kMaxSearch) found.to = kManyNodes;
  }
  steps_.emplace(key, found);
  return found;
}

// Breadth first over the code points of the kind, all at once. A conservative estimate: what leaves the rule, overlaps,
// or is too large counts as unknown.
Reach NodeReach::search(uint32_t start, size_t kind) {
  const auto& leads = all_leads()[kind];
  std::vector<At> level = {{start, 0}}, next_level;
  struct Seen {
    At at;
    uint32_t depth;
  };
  std::vector<Seen> seen = {{{start, 0}, 0}};  // few
  Reach found{kAllCodes, 0, automaton_.shortest(start)};
  for (uint32_t depth = 0; !level.empty(); ++depth) {
    next_level.clear();
    if (found.none < kAllCodes) found.none = std::min(depth + 1, kAllCodes);
    for (size_t i = 0; i < level.size(); ++i) {
      const At at = level[i];
      auto enter = [&](uint32_t to, uint8_t phase) {
        const uint32_t to_depth = depth + (phase == 0 ? 1 : 0);
        const At place{to, phase};
        const auto known_place = std::find_if(seen.begin(), seen.end(), [&](const Seen& s) { return s.at == place; });
        if (known_place != seen.end()) {
          if (known_place->depth != to_depth) found.none = kAllCodes;
          return;
        }
        seen.push_back({place, to_depth});
        if (phase == 0) {
          found.worst = std::max(found.worst, automaton_.shortest(to));
          if (automaton_.accepts(to) || !automaton_.calls(to).empty()) found.none = kAllCodes;
          auto known = reaches_.find(static_cast<uint64_t>(to) << 4 | kind);
          if (known != reaches_.end()) {
            const Reach& rest = known->second;
            if (rest.all < kAllCodes) found.all = std::min(found.all, std::min(to_depth + rest.all, kMaxCounted));
            found.none =
                rest.none >= kAllCodes ? kAllCodes : std::max(found.none, std::min(to_depth + rest.none, kAllCodes));
            found.worst = std::max(found.worst, rest.worst);
            return;
          }
        }
        (phase == 0 ? next_level : level).push_back({to, phase});
      };
      // Each range of bytes that must be there.
      auto need = [&](uint32_t lo, uint32_t hi, uint8_t phase) {
        uint32_t covered = lo;  // up to here, without it
        for (const SymbolEdge& e : automaton_.edges(at.node)) {
          if (e.hi < lo || e.lo > hi) continue;
          if (e.lo > covered && trie_.has_plain(covered, e.lo - 1u))
            found.all = std::min({found.all, depth, kMaxCounted});
          covered = std::max<uint32_t>(covered, e.hi + 1u);
          enter(e.to, phase);
        }
        if (covered <= hi && trie_.has_plain(covered, hi)) found.all = std::min({found.all, depth, kMaxCounted});
      };
      if (at.phase == 0) {
        for (const Lead& lead : leads) need(lead.lo, lead.hi, lead.phase);
      } else {
        for (const Phase& p : phases()[at.phase]) need(p.lo, p.hi, p.next);
      }
      if (found.all == 0 && found.none >= kAllCodes) return found;
      if (seen.size() > kMaxSearch) return {std::min({found.all, depth, kMaxCounted}), kAllCodes, kNever};
    }
    level.swap(next_level);
  }
  return found;
}

Reach NodeReach::reach_of_counter(uint32_t node, size_t kind) {
  const Counter& counter = automaton_.counter(node);
  const uint32_t start = automaton_.start(counter.body);
  const uint32_t worst = automaton_.shortest(node);
  if (automaton_.is_counter(start) || !automaton_.calls(start).empty()) return {0, kAllCodes, worst};
  // Whether the body is one code point, whichever of the kind.
  const Step body = step(start, kind);
  if (body.dies()) return {0, 1, worst};
  if (!body.is_one() || !automaton_.only_accepts(body.to)) return {0, kAllCodes, worst};
  if (counter.is_unbounded) return {kAllCodes, kAllCodes, worst};
  const uint32_t left = counter.last - (node - counter.base);
  const bool is_enough = left >= trie_.kind(kind).longest;
  // After the counter may be more of the kind.
  return {is_enough ? kAllCodes : std::min(left, kMaxCounted), kAllCodes, worst};
}

}  // namespace ibid::grammar
