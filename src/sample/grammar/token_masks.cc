#include "sample/grammar/token_masks.h"

#include <algorithm>
#include <array>
#include <bit>
#include <utility>

#include "base/check.h"

namespace ibid::grammar {
namespace {

// The state after this one is the one after each code point of the kind where all are one.
uint32_t some_byte(size_t kind) { return kind == kDigits ? '0' : 'a'; }
constexpr uint32_t kMany = 8;  // entries below a node that are worth a look at their bytes

// The bytes that are code points of a kind.
const std::bitset<256>& ascii_of(size_t kind) {
  static const auto table = [] {
    std::array<std::bitset<256>, kPlainKinds> bytes;
    for (size_t k = 0; k < kPlainKinds; ++k)
      for (size_t b = 0; b < 128; ++b) bytes[k][b] = kind_has(k, static_cast<uint8_t>(b));
    return bytes;
  }();
  return table[kind];
}

}  // namespace

TokenMasks::TokenMasks(std::shared_ptr<const Automaton> automaton, std::shared_ptr<const TokenTrie> trie,
                       size_t max_bytes)
    : states_(std::move(automaton)),
      trie_(std::move(trie)),
      max_bytes_(max_bytes),
      reach_(states_.automaton(), *trie_) {
  for (uint32_t b = 0; b < 256; ++b) {
    if (!trie_->used_bytes()[b]) continue;
    const uint32_t a_class = states_.automaton().class_of(b);
    if (byte_classes_.empty() || byte_classes_.back().a_class != a_class) byte_classes_.push_back({a_class, 0, {}});
    byte_classes_.back().groups |= ByteGroups{1} << (b < 0x80 ? group_of_ascii(static_cast<uint8_t>(b)) : kPartGroup);
    byte_classes_.back().bytes.set(b);
  }
}

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
  const Recipe* plain = &recipe(state, left != kNoLimit);
  Recipe tight;
  const uint32_t worst = plain->worst;
  if (left != kNoLimit && worst >= left && states_.shortest(state) <= left) {
    measures_ = true;
    tight = make(state, left);
    plain = &tight;
  }
  if (plain->is_lost) return void(std::ranges::fill(mask, 0));
  bool is_empty = true;  // still as it came
  auto unite = [&](const uint32_t* bits) {
    if (is_empty) {
      std::copy_n(bits, n, mask.data());
      std::fill(mask.begin() + static_cast<ptrdiff_t>(n), mask.end(), 0);
    } else {
      for (size_t w = 0; w < n; ++w) mask[w] |= bits[w];
    }
    is_empty = false;
  };
  for (Recipe::Whole whole : plain->wholes)
    unite(whole.kind == kPlainKinds ? trie_->plain_up_to(whole.up_to).data()
          : whole.kind == kCounts   ? trie_->counts_up_to(whole.up_to).data()
                                    : trie_->kind(whole.kind).up_to_n(whole.up_to).data());
  if (!plain->bits.empty()) unite(plain->bits.data());
  if (is_empty) std::fill(mask.begin(), mask.end(), 0);
  for (int32_t t : plain->refused) mask[static_cast<size_t>(t) / 32] &= ~(1u << (t % 32));
  for (int32_t t : plain->tokens) mask[static_cast<size_t>(t) / 32] |= 1u << (t % 32);
}

const TokenMasks::Recipe& TokenMasks::recipe(StateId state, bool must_measure) {
  auto known = recipes_.find(state);
  if (known != recipes_.end() && (known->second.is_measured || !must_measure)) return known->second;
  measures_ = must_measure;
  Recipe made = make(state, kNoLimit);
  if (known != recipes_.end()) {
    known->second.worst = made.worst;
    known->second.is_measured = true;
    return known->second;
  }
  mask_bytes_ += sizeof(Recipe) + 64 + made.tokens.capacity() * 4 + made.bits.size() * 4 + made.refused.capacity() * 4 +
                 made.wholes.capacity() * 2;
  return recipes_.emplace(state, std::move(made)).first->second;
}

TokenMasks::Spread TokenMasks::spread(StateId state) {
  auto known = spreads_.find(state);
  if (known != spreads_.end()) return known->second;
  constexpr ByteGroups kNonAsciiBit = ByteGroups{1} << kNonAsciiGroup, kFarSpaceBit = ByteGroups{1} << kFarSpaceGroup,
                       kBeyond = kNonAsciiBit | kFarSpaceBit | ByteGroups{1} << kPartGroup;
  Spread found{states_.next(state, 'a'), ~ByteGroups{0}, 0, ~ByteGroups{0}};
  const uint32_t* row = states_.row(state);
  for (const ByteClass& c : byte_classes_) {
    const StateId next = states_.next_in(row, state, c.a_class);
    if (next != kDead) found.any |= c.groups;
    if (next != found.to) found.all &= ~c.groups;
    if (next != state) found.stay &= ~c.groups;
  }
  found.all &= ~kBeyond;
  found.stay &= ~kBeyond;
  const auto add = [&](size_t kind, std::string_view one, ByteGroups group) {
    const Ways found_ways = ways(state, kind);
    if (found_ways != Ways::kNone) found.any |= group;
    if (found_ways != Ways::kOne) return;
    const StateId next = states_.after(state, one);
    if (next == found.to) found.all |= group;
    if (next == state) found.stay |= group;
  };
  add(kNonAscii, kSomeNonAscii, kNonAsciiBit);
  add(kFarSpace, kSomeFarSpace, kFarSpaceBit);
  if (found.to == kDead) found.all = 0;
  mask_bytes_ += sizeof(Spread) + 48;
  spreads_.emplace(state, found);
  return found;
}

// To be walked: what lies below is on its way from memory while others are.
void TokenMasks::look_ahead(const ByteTrie& trie, uint32_t node, StateId state) {
  __builtin_prefetch(trie.nodes.data() + trie.nodes[node].child);
  ahead_.push_back({node, state});
}

template <typename Found>
void TokenMasks::walk(const ByteTrie& trie, Found&& found) {
  const Automaton& automaton = states_.automaton();
  StateId asked = kDead;
  bool is_string = false;  // no code point of kUnicode leaves `asked`
  ByteGroups stays = 0;    // bytes after which `asked` stays the same state
  while (!ahead_.empty()) {
    const auto [at, state] = ahead_.back();
    ahead_.pop_back();
    const ByteTrie::Node* node = &trie.nodes[at];
    if (node->byte < 0x80 && node->end - node->first >= kMany) {  // after a whole code point
      if (state != asked) {
        asked = state;
        const bool may_stay = states_.next(state, 'a') == state;
        is_string = may_stay && ways(state, kUnicode) == Ways::kOne;
        stays = !may_stay                                        ? 0
                : is_string && states_.next(state, '"') != state ? groups_of_kind(kUnicode)
                                                                 : spread(state).all;
      }
      if (stays != 0 && (trie.groups[at] & ~stays) == 0) {
        found(node->first, node->end, state);
        continue;
      }
      if (is_string && node->twin != 0) node = &trie.nodes[trie.twins[node->twin - 1u]];
    }
    const ByteTrie::Node& n = *node;
    if (const uint32_t end = trie.own_end(n); n.first < end) found(n.first, end, state);
    const uint32_t* row = states_.row(state);
    const bool has_large_steps =
        n.n_children > 0 && !states_.is_small(state);  // so that states are made for leaves too
    for (uint32_t i = n.child + n.n_children; i-- > n.child;) {
      const ByteTrie::Node& child = trie.nodes[i];
      const uint32_t a_class = automaton.class_of(child.byte);
      const bool is_leaf = child.n_children == 0;
      const bool may_skip = is_leaf && !measures_ && States::has_unmade(row, a_class) && states_.is_small(state);
      const StateId next = may_skip ? kUnmade : states_.next_in(row, state, a_class);
      if (next == kDead) continue;
      if (is_leaf) {
        if (has_large_steps && next != kUnmade)
          n_looked_at_ += states_.stepped(next).size() + states_.called(next).size();
        found(child.first, child.end, next);
      } else {
        n_looked_at_ += states_.stepped(next).size() + states_.called(next).size() + automaton.n_classes() / 32;
        if (n_looked_at_ > kMostLookedAt) return ahead_.clear();
        look_ahead(trie, i, next);
      }
    }
  }
}

// The entries of a whole trie that begin with one of the bytes of `first`.
void TokenMasks::walk_all(const ByteTrie& trie, StateId state, const std::bitset<256>& first, uint32_t left,
                          Recipe& made) {
  const Automaton& automaton = states_.automaton();
  const uint32_t* row = states_.row(state);
  for (size_t b = first._Find_first(); b < 256; b = first._Find_next(b)) {
    if (trie.roots[b] == ByteTrie::kNoRoot) continue;
    const StateId begin = states_.next_in(row, state, automaton.class_of(static_cast<uint32_t>(b)));
    if (begin == kDead) continue;
    look_ahead(trie, trie.nodes[0].child + trie.roots[b], begin);
  }
  walk(trie, [&](uint32_t from, uint32_t end, StateId next) {
    if (next != kUnmade && states_.shortest(next) >= left) return;
    measure(next, made.worst);
    for (; from < end; ++from) made.tokens.push_back(trie.tokens[from]);
  });
}

// The bytes that may come next.
std::bitset<256> TokenMasks::next_bytes(StateId state) {
  std::bitset<256> bytes;
  const uint32_t* row = states_.row(state);
  for (const ByteClass& c : byte_classes_)
    if (states_.next_in(row, state, c.a_class) != kDead) bytes |= c.bytes;
  return bytes;
}

TokenMasks::Recipe TokenMasks::make(StateId state, uint32_t left) {
  Recipe made;
  made.is_measured = measures_;
  n_looked_at_ = 0;
  made.tokens.swap(token_room_);
  made.tokens.clear();
  const Automaton& automaton = states_.automaton();
  bool is_made = left == kNoLimit && (make_by_chain(state, kUnicode, made) || make_by_difference(state, made));
  is_made = is_made ||
            (left == kNoLimit && states_.next(state, 'a') == kDead ? make_by_chain(state, kDigits, made)
                                                                   : left == kNoLimit && make_by_groups(state, made));
  if (!is_made) make_by_walk(state, left, made);
  walk_all(trie_->kind(static_cast<size_t>(TokenKind::kRest)).trie, state, next_bytes(state), left, made);
  for (uint32_t c = 0; c < automaton.token_classes().size(); ++c) {
    const StateId next = states_.next(state, 256 + c);
    if (next == kDead || states_.shortest(next) >= left) continue;
    made.worst = std::max(made.worst, states_.shortest(next));
    for (TokenRange range : automaton.token_classes()[c])
      for (int32_t t = std::max(range.lo, 0); t <= range.hi && t < trie_->vocab_size(); ++t) made.tokens.push_back(t);
  }
  if (!made.bits.empty() || made.tokens.size() > trie_->mask_words()) {
    made.bits.resize(trie_->mask_words(), 0);
    for (int32_t t : made.tokens) made.bits[static_cast<size_t>(t) / 32] |= 1u << (t % 32);
    made.tokens.clear();
  }
  token_room_.swap(made.tokens);
  made.tokens.assign(token_room_.begin(), token_room_.end());
  if (n_looked_at_ > kMostLookedAt) {
    made = {};
    made.worst = kNever;
    made.is_measured = measures_;
    made.is_lost = true;
  }
  return made;
}

// Items in counters read nothing themselves; those of their bodies do.
TokenMasks::Ways TokenMasks::ways(StateId state, size_t kind) {
  if (kind == kUnicode && state < ways_.size() && ways_[state] != Ways::kUnknown) return ways_[state];
  Ways found = Ways::kNone;
  for (const std::span<const Item> items : {states_.stepped(state), states_.called(state)}) {
    for (const Item& item : items) {
      if (states_.automaton().is_counter(item.node) || found == Ways::kMany) continue;
      const Step step = reach_.step(item.node, kind);
      if (!step.dies()) found = step.is_one() ? Ways::kOne : Ways::kMany;
    }
  }
  if (kind == kUnicode) {
    if (ways_.size() <= state) ways_.resize(2 * state + 64);
    ways_[state] = found;
  }
  return found;
}

bool TokenMasks::make_chain(StateId state, size_t kind) {
  chain_.assign(1, state);
  is_endless_ = true;
  while (chain_.size() <= trie_->tails(kind).longest) {
    const Ways found = ways(chain_.back(), kind);
    if (found == Ways::kMany) return false;
    const StateId next = found == Ways::kNone ? kDead : states_.next(chain_.back(), some_byte(kind));
    if (next == kDead) {
      is_endless_ = false;
      break;
    }
    if (next == chain_.back()) break;
    chain_.push_back(next);
  }
  return is_endless_ || chain_.size() > 1;
}

// What follows n code points is computed once for all n whose states lead to the same state, among the n that tokens
// have.
template <typename Found>
void TokenMasks::walk_tails(size_t kind, Found&& found) {
  const Automaton& automaton = states_.automaton();
  const TokenTrie::Tails& tails = trie_->tails(kind);
  const ByteTrie& trie = tails.trie;
  const size_t last = chain_.size() - 1;
  for (uint32_t i = 0; i < trie.nodes[0].n_children; ++i) {
    const uint32_t child = trie.nodes[0].child + i, a_class = automaton.class_of(trie.nodes[child].byte);
    const std::vector<uint16_t>& lengths = tails.lengths[i];
    auto following = [&](size_t at) {
      if (!is_endless_ && lengths[at] > last) return kDead;
      return states_.next_of_class(chain_[std::min<size_t>(lengths[at], last)], a_class);
    };
    size_t from = 0, next_from = 0;
    StateId begin = following(0), next_begin = kDead;
    for (; from < lengths.size(); from = next_from, begin = next_begin) {
      for (next_from = from + 1; next_from < lengths.size(); ++next_from)
        if (next_begin = following(next_from); next_begin != begin) break;
      if (begin == kDead) continue;
      const uint16_t least = lengths[from], most = lengths[next_from - 1];
      look_ahead(trie, child, begin);
      walk(trie, [&](uint32_t e, uint32_t end, StateId next) {
        for (; e < end; ++e)
          if (least <= trie.lengths[e] && trie.lengths[e] <= most) found(e, next);
      });
    }
  }
}

void TokenMasks::add_taken_tails(Recipe& made) {
  const TokenTrie::Tails& tails = trie_->tails(kUnicode);
  walk_tails(kUnicode, [&](uint32_t entry, StateId next) {
    if (!takes_[tails.bucket[entry] - trie_->first_tailed()]) return;
    measure(next, made.worst);
    const auto token = static_cast<size_t>(tails.trie.tokens[entry]);
    made.bits[token / 32] |= 1u << (token % 32);
  });
}

bool TokenMasks::make_by_chain(StateId state, size_t kind, Recipe& made) {
  if (!make_chain(state, kind)) return false;
  const size_t length = chain_.size() - 1;
  const auto up_to = static_cast<uint8_t>(is_endless_ ? kAllCodes : std::min<size_t>(length, kMaxCounted));
  for (size_t n = std::min<size_t>(1, length); n <= length; ++n)
    made.worst = std::max(made.worst, states_.shortest(chain_[n]));
  if (kind == kUnicode) made.wholes.push_back({static_cast<uint8_t>(kPlainKinds), up_to});
  for (size_t k = 0; k < kPlainKinds; ++k) {
    if (!kind_has_kind(kind, k)) continue;
    if (kind != kUnicode) made.wholes.push_back({static_cast<uint8_t>(k), up_to});
    for (auto [n, token] : trie_->kind(k).long_ones)
      if (!is_endless_ && n <= length) made.tokens.push_back(token);
  }
  const std::vector<int32_t>& tokens = trie_->tails(kind).trie.tokens;
  walk_tails(kind, [&](uint32_t entry, StateId next) {
    measure(next, made.worst);
    made.tokens.push_back(tokens[entry]);
  });
  if (kind == kUnicode) return true;
  const std::bitset<256> outside = next_bytes(state) & ~ascii_of(kind);
  for (size_t k = 0; k <= kTailed; ++k) {
    if (k < kPlainKinds && kind_has_kind(kind, k)) continue;
    walk_all(trie_->kind(k).trie, state, outside, kNoLimit, made);
  }
  return true;
}

const TokenMasks::Tailed& TokenMasks::tailed(StateId state) {
  auto known = tailed_.find(state);
  if (known != tailed_.end() && (known->second.is_measured || !measures_)) return known->second;
  Tailed made;
  made.is_measured = measures_;
  const TokenTrie::Tails& tails = trie_->tails(kUnicode);
  const size_t looked_at_before = std::exchange(n_looked_at_, 0);  // a text is not lost for what is made but once
  walk_tails(kUnicode, [&](uint32_t entry, StateId next) {
    measure(next, made.worst);
    made.tokens.push_back(tails.trie.tokens[entry]);
    made.first.push_back(tails.first[entry]);
  });
  made.is_lost = n_looked_at_ > kMostLookedAt;
  n_looked_at_ = looked_at_before;
  if (known != tailed_.end()) return known->second = std::move(made);
  mask_bytes_ += sizeof(Tailed) + 40 + made.tokens.capacity() * 4 + made.first.capacity();
  return tailed_.emplace(state, std::move(made)).first->second;
}

// A byte that hardly any grammar spells out shows the state that all others lead to.
bool TokenMasks::make_by_difference(StateId state, Recipe& made) {
  const StateId other = states_.next(state, '~');
  if (other == kDead || ways(other, kUnicode) != Ways::kOne || states_.next(other, 'a') != other) return false;
  chain_.assign(1, other);
  is_endless_ = true;
  const Tailed& tails = tailed(other);
  if (tails.is_lost) return n_looked_at_ = kMostLookedAt + 1, true;
  made.worst = std::max(states_.shortest(other), tails.worst);
  made.wholes.push_back({static_cast<uint8_t>(kPlainKinds), static_cast<uint8_t>(kAllCodes)});
  std::bitset<256> differs;
  const uint32_t *row = states_.row(state), *other_row = states_.row(other);
  for (const ByteClass& c : byte_classes_)
    if (states_.next_in(row, state, c.a_class) != states_.next_in(other_row, other, c.a_class)) differs |= c.bytes;
  for (size_t k = 0; k < kPlainKinds; ++k) walk_differences(trie_->kind(k).trie, state, other, differs, made);
  for (size_t i = 0; i < tails.tokens.size(); ++i)
    if (!differs[tails.first[i]]) made.tokens.push_back(tails.tokens[i]);
  walk_all(trie_->kind(kTailed).trie, state, differs, kNoLimit, made);
  return true;
}

// The tokens that `other` takes and `state` does not, where `differs` has the first byte. As deep as the longest text
// that the grammar spells out.
void TokenMasks::walk_differences(const ByteTrie& trie, StateId state, StateId other, const std::bitset<256>& differs,
                                  Recipe& made) {
  const Automaton& automaton = states_.automaton();
  differing_.clear();
  const auto compare = [&](uint32_t i, StateId from, StateId other_from) {
    const ByteTrie::Node& n = trie.nodes[i];
    const uint32_t a_class = automaton.class_of(n.byte);
    const StateId next = states_.next_of_class(from, a_class), same = states_.next_of_class(other_from, a_class);
    if (next == same) return;
    if (next == kDead) {
      made.refused.insert(made.refused.end(), trie.tokens.begin() + n.first, trie.tokens.begin() + n.end);
      return;
    }
    if (n.first < trie.own_end(n)) made.worst = std::max(made.worst, states_.shortest(next));
    if (n.n_children > 0) differing_.push_back({i, next, same});
  };
  for (size_t b = differs._Find_first(); b < 256; b = differs._Find_next(b))
    if (trie.roots[b] != ByteTrie::kNoRoot) compare(trie.nodes[0].child + trie.roots[b], state, other);
  while (!differing_.empty()) {
    const Differing at = differing_.back();
    differing_.pop_back();
    const ByteTrie::Node& n = trie.nodes[at.node];
    for (uint32_t i = n.child; i < n.child + n.n_children; ++i) compare(i, at.state, at.other);
  }
}

// Where a number may begin that has further digits after any first digit but 0.
bool TokenMasks::make_by_count(StateId state, Recipe& made) {
  const StateId following = states_.next(state, '1');
  if (following == kDead) return false;
  for (uint32_t b = '2'; b <= '9'; ++b)
    if (states_.next(state, b) != following) return false;
  if (trie_->kind(kDigits).longest > kMaxCounted || !make_chain(following, kDigits)) return false;
  for (StateId at : chain_) made.worst = std::max(made.worst, states_.shortest(at));
  made.wholes.push_back({kCounts, static_cast<uint8_t>(is_endless_ ? kAllCodes : chain_.size())});
  return true;
}

void TokenMasks::make_by_walk(StateId state, uint32_t left, Recipe& made) {
  const Automaton& automaton = states_.automaton();
  static const std::bitset<256> zero = std::bitset<256>().set('0');
  const std::bitset<256> first = next_bytes(state);
  for (size_t kind = 0; kind < kPlainKinds; ++kind) {
    Reach whole{0, kAllCodes};
    if ((ascii_of(kind) & trie_->plain_bytes() & ~first).none()) {
      whole.none = 0;
      auto add = [&](const Item& item, bool is_called_here) {
        const Reach r = reach_.reach(item.node, kind);
        // A counter stands for the start of its body, not for what that calls in turn.
        const bool is_spoken_for =
            is_called_here && automaton.is_counted_body(item.as) && item.node == automaton.start(item.as);
        if (!is_spoken_for) whole.none = std::max(whole.none, r.none);
        if (r.all <= whole.all) return;
        whole.all = r.all;
        whole.worst = std::min(kNever, r.worst + states_.rest_after(item));
      };
      for (const Item& item : states_.stepped(state)) add(item, false);
      for (const Item& item : states_.called(state)) add(item, true);
      if (whole.worst >= left) whole.all = 0, whole.none = whole.none > 1 ? kAllCodes : whole.none;
    }
    if (whole.all > 0) {
      made.wholes.push_back({static_cast<uint8_t>(kind), static_cast<uint8_t>(whole.all)});
      made.worst = std::max(made.worst, whole.worst);
    }
    if (whole.all == kAllCodes || (whole.none < kAllCodes && whole.none <= whole.all + 1)) continue;
    const bool is_count = kind == kDigits && whole.all <= 1 && left == kNoLimit && make_by_count(state, made);
    walk_all(trie_->kind(kind).trie, state, is_count ? first & zero : first, left, made);
  }
  walk_all(trie_->kind(kTailed).trie, state, first, left, made);
}

void TokenMasks::forget_others(std::span<const StateId> live) {
  recipes_.clear();
  tailed_.clear();
  ways_.clear();
  spreads_.clear();
  reach_.forget();
  mask_bytes_ = 0;
  states_.forget_others(live);
  bytes_kept_ = bytes();
}

}  // namespace ibid::grammar
