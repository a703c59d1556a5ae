#include "sample/grammar/token_masks.h"

#include <algorithm>
#include <array>

#include "base/check.h"

namespace ibid::grammar {
namespace {

constexpr uint32_t kAll = kMaxCounted + 1;  // a number of code points that no token is counted beyond
constexpr size_t kMaxSearch = 2048;         // nodes

// What may follow inside a code point of UTF-8 (Unicode 16, table 3-7).
struct Phase {
  uint8_t lo, hi, next;
};
constexpr std::array<Phase, 8> kPhases = {{{0, 0, 0},
                                           {0x80, 0xBF, 0},    // 1: one more
                                           {0x80, 0xBF, 1},    // 2: two more
                                           {0x80, 0xBF, 2},    // 3: three more
                                           {0xA0, 0xBF, 1},    // 4: behind E0
                                           {0x80, 0x9F, 1},    // 5: behind ED
                                           {0x90, 0xBF, 2},    // 6: behind F0
                                           {0x80, 0x8F, 2}}};  // 7: behind F4
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

// The ranges of the bytes that begin a code point of a kind, with what follows.
std::vector<Lead> leads_of(size_t kind) {
  std::vector<Lead> leads;
  for (int b = 0; b < 0x80; ++b) {
    if (!kind_has(kind, static_cast<uint8_t>(b))) continue;
    if (!leads.empty() && leads.back().hi + 1 == b) {
      leads.back().hi = static_cast<uint8_t>(b);
    } else {
      leads.push_back({static_cast<uint8_t>(b), static_cast<uint8_t>(b), 0});
    }
  }
  if (kind == static_cast<size_t>(TokenKind::kUnicode)) {
    leads.insert(leads.end(), kLeads.begin(), kLeads.end());
    leads.push_back(kLastLead);
  }
  return leads;
}

const std::array<std::vector<Lead>, kPlainKinds>& all_leads() {
  static const auto leads = [] {
    std::array<std::vector<Lead>, kPlainKinds> all;
    for (size_t kind = 0; kind < kPlainKinds; ++kind) all[kind] = leads_of(kind);
    return all;
  }();
  return leads;
}

}  // namespace

TokenMasks::TokenMasks(std::shared_ptr<const Automaton> automaton, std::shared_ptr<const TokenTrie> trie,
                       size_t max_bytes)
    : states_(std::move(automaton)), trie_(std::move(trie)), max_bytes_(max_bytes), path_(trie_->longest() + 1) {}

StateId TokenMasks::after(StateId state, TokenId token) {
  if (!states_.automaton().token_classes().empty()) {
    const int32_t c = states_.automaton().token_class(token);
    const StateId named = c < 0 ? kDead : states_.next(state, 256 + static_cast<uint32_t>(c));
    if (named != kDead) return named;
  }
  const std::string_view bytes = trie_->bytes_of(token);
  return bytes.empty() ? kDead : states_.after(state, bytes);
}

void TokenMasks::fill(StateId state, std::span<uint32_t> mask, uint32_t left) {
  const size_t n = trie_->mask_words();
  CHECK(state != kDead && mask.size() >= n);
  std::fill(mask.begin(), mask.end(), 0);
  const Recipe* plain = &recipe(state);
  Recipe tight;
  if (left != kNoLimit && plain->worst >= left && states_.shortest(state) <= left) {
    tight = make(state, left);
    plain = &tight;
  }
  for (Recipe::Whole whole : plain->wholes) {
    const std::vector<uint32_t>& bits = trie_->kind(whole.kind).up_to_n(whole.up_to);
    for (size_t w = 0; w < n; ++w) mask[w] |= bits[w];
  }
  for (size_t w = 0; w < plain->bits.size(); ++w) mask[w] |= plain->bits[w];
  for (int32_t t : plain->tokens) mask[static_cast<size_t>(t) / 32] |= 1u << (t % 32);
}

const TokenMasks::Recipe& TokenMasks::recipe(StateId state) {
  auto known = recipes_.find(state);
  if (known != recipes_.end()) {
    ++n_hits_;
    return known->second;
  }
  ++n_misses_;
  Recipe made = make(state, kNoLimit);
  mask_bytes_ += sizeof(Recipe) + 64 + made.tokens.capacity() * 4 + made.bits.size() * 4 + made.wholes.capacity() * 2;
  return recipes_.emplace(state, std::move(made)).first->second;
}

template <typename Found>
void TokenMasks::walk(const TokenTrie::Kind& kind, StateId state, Found&& found) {
  const Automaton& automaton = states_.automaton();
  path_[0] = state;
  for (uint32_t i = 0; i < kind.nodes.size();) {
    const TrieNode node = kind.nodes[i];
    const StateId next = states_.next_of_class(path_[node.depth - 1u], automaton.class_of(node.byte));
    if (next == kDead) {
      i = node.skip;
      continue;
    }
    path_[node.depth] = next;
    if (node.is_token) found(kind.tokens[i], next);
    ++i;
  }
}

TokenMasks::Recipe TokenMasks::make(StateId state, uint32_t left) {
  Recipe made;
  const Automaton& automaton = states_.automaton();
  auto add = [&](int32_t token, StateId next) {
    const uint32_t rest = states_.shortest(next);
    if (rest >= left) return;
    made.worst = std::max(made.worst, rest);
    for (int32_t t = token; t >= 0; t = trie_->twin(t)) made.tokens.push_back(t);
  };
  for (size_t kind = 0; kind < kPlainKinds; ++kind) {
    Reach whole;
    for (const Item& item : states_.items(state)) {
      const Reach r = reach(item.node, kind);
      // A counter speaks for the calls of its body.
      if (!(item.origin == state && automaton.is_counted_body(item.as))) whole.none = std::max(whole.none, r.none);
      if (r.all <= whole.all) continue;
      whole.all = r.all;
      whole.worst = std::min(kNever, r.worst + states_.rest_behind(item));
    }
    if (whole.worst >= left) whole.all = 0, whole.none = whole.none > 1 ? kAll : whole.none;
    if (whole.all > 0) {
      made.wholes.push_back({static_cast<uint8_t>(kind), static_cast<uint8_t>(whole.all)});
      made.worst = std::max(made.worst, whole.worst);
    }
    if (whole.all < kAll && whole.none > whole.all + 1) walk(trie_->kind(kind), state, add);
  }
  walk(trie_->kind(static_cast<size_t>(TokenKind::kRest)), state, add);
  for (uint32_t c = 0; c < automaton.token_classes().size(); ++c) {
    const StateId next = states_.next(state, 256 + c);
    if (next == kDead || states_.shortest(next) >= left) continue;
    made.worst = std::max(made.worst, states_.shortest(next));
    for (TokenRange range : automaton.token_classes()[c])
      for (int32_t t = std::max(range.lo, 0); t <= range.hi && t < trie_->vocab_size(); ++t) made.tokens.push_back(t);
  }
  if (made.tokens.size() > trie_->mask_words()) {
    made.bits.assign(trie_->mask_words(), 0);
    for (int32_t t : made.tokens) made.bits[static_cast<size_t>(t) / 32] |= 1u << (t % 32);
    made.tokens = {};
  }
  return made;
}

TokenMasks::Reach TokenMasks::reach(uint32_t node, size_t kind) {
  const uint64_t key = static_cast<uint64_t>(node) << 3 | kind;
  auto known = reaches_.find(key);
  if (known != reaches_.end()) return known->second;
  const Reach found = states_.automaton().is_counter(node) ? reach_of_counter(node, kind) : search(node, kind);
  reaches_.emplace(key, found);
  mask_bytes_ += sizeof(Reach) + 40;
  return found;
}

// Breadth first over the code points of the kind, all at once. Never too much is promised: what leaves the rule, or
// overlaps, or is too large, counts as unknown.
TokenMasks::Reach TokenMasks::search(uint32_t start, size_t kind) {
  const Automaton& automaton = states_.automaton();
  const auto& leads = all_leads()[kind];
  struct At {
    uint32_t node;
    uint8_t phase;
    bool operator==(const At&) const = default;
  };
  std::vector<At> level = {{start, 0}}, next_level;
  std::unordered_map<uint64_t, uint32_t> seen = {{static_cast<uint64_t>(start) << 3, 0}};
  Reach found{kAll, 0, automaton.shortest(start)};
  for (uint32_t depth = 0; !level.empty(); ++depth) {
    next_level.clear();
    if (found.none < kAll) found.none = std::min(depth + 1, kAll);
    for (size_t i = 0; i < level.size(); ++i) {
      const At at = level[i];
      auto enter = [&](uint32_t to, uint8_t phase) {
        const uint32_t to_depth = depth + (phase == 0 ? 1 : 0);
        auto [place, is_new] = seen.try_emplace(static_cast<uint64_t>(to) << 3 | phase, to_depth);
        if (!is_new) {
          if (place->second != to_depth) found.none = kAll;
          return;
        }
        if (phase == 0) {
          found.worst = std::max(found.worst, automaton.shortest(to));
          if (automaton.accepts(to) || !automaton.calls(to).empty()) found.none = kAll;
          auto known = reaches_.find(static_cast<uint64_t>(to) << 3 | kind);
          if (known != reaches_.end()) {
            const Reach& rest = known->second;
            if (rest.all < kAll) found.all = std::min(found.all, std::min(to_depth + rest.all, kMaxCounted));
            found.none = rest.none >= kAll ? kAll : std::max(found.none, std::min(to_depth + rest.none, kAll));
            found.worst = std::max(found.worst, rest.worst);
            return;
          }
        }
        (phase == 0 ? next_level : level).push_back({to, phase});
      };
      // Each range of bytes that must be there.
      auto need = [&](uint32_t lo, uint32_t hi, uint8_t phase) {
        uint32_t covered = lo;  // up to here, without it
        for (const SymbolEdge& e : automaton.edges(at.node)) {
          if (e.hi < lo || e.lo > hi) continue;
          if (e.lo > covered) found.all = std::min({found.all, depth, kMaxCounted});
          covered = std::max<uint32_t>(covered, e.hi + 1u);
          enter(e.to, phase);
        }
        if (covered <= hi) found.all = std::min({found.all, depth, kMaxCounted});
      };
      if (at.phase == 0) {
        for (const Lead& lead : leads) need(lead.lo, lead.hi, lead.phase);
      } else {
        need(kPhases[at.phase].lo, kPhases[at.phase].hi, kPhases[at.phase].next);
      }
      if (found.all == 0 && found.none >= kAll) return found;
      if (seen.size() > kMaxSearch) return {std::min({found.all, depth, kMaxCounted}), kAll, kNever};
    }
    level.swap(next_level);
  }
  return found;
}

TokenMasks::Reach TokenMasks::reach_of_counter(uint32_t node, size_t kind) {
  const Automaton& automaton = states_.automaton();
  const Counter& counter = automaton.counter(node);
  const uint32_t start = automaton.start(counter.body);
  const uint32_t worst = automaton.shortest(node);
  if (automaton.is_counter(start) || !automaton.calls(start).empty()) return {0, kAll, worst};
  // Whether the body is one code point, whichever of the kind. Its nodes are looked at here alone.
  struct At {
    uint32_t node;
    uint8_t phase;
  };
  std::vector<At> ahead = {{start, 0}};
  bool takes_all = true, takes_none = true;
  for (size_t i = 0; i < ahead.size() && ahead.size() <= kMaxSearch; ++i) {
    auto need = [&](uint32_t lo, uint32_t hi, uint8_t phase) {
      uint32_t covered = lo;
      for (const SymbolEdge& e : automaton.edges(ahead[i].node)) {
        if (e.hi < lo || e.lo > hi) continue;
        takes_none = false;
        takes_all &= e.lo <= covered;
        covered = std::max<uint32_t>(covered, e.hi + 1u);
        if (phase == 0) {
          takes_all &= automaton.only_accepts(e.to);
        } else {
          takes_all &= !automaton.accepts(e.to) && automaton.calls(e.to).empty();
          const At to{e.to, phase};
          if (std::none_of(ahead.begin(), ahead.end(), [&](At a) { return a.node == to.node && a.phase == phase; }))
            ahead.push_back(to);
        }
      }
      takes_all &= covered > hi;
    };
    const At at = ahead[i];
    if (at.phase == 0) {
      for (const Lead& lead : all_leads()[kind]) need(lead.lo, lead.hi, lead.phase);
    } else {
      need(kPhases[at.phase].lo, kPhases[at.phase].hi, kPhases[at.phase].next);
    }
  }
  if (takes_none) return {0, 1, worst};
  if (!takes_all || ahead.size() > kMaxSearch) return {0, kAll, worst};
  if (counter.is_unbounded) return {kAll, kAll, worst};
  const uint32_t left = counter.last - (node - counter.base);
  const bool is_enough = left >= trie_->kind(kind).longest;
  return {is_enough ? kAll : std::min(left, kMaxCounted), std::min(left + 1, kAll), worst};
}

void TokenMasks::forget_others(std::span<const StateId> live) {
  recipes_.clear();
  reaches_.clear();
  mask_bytes_ = 0;
  states_.forget_others(live);
}

}  // namespace ibid::grammar
