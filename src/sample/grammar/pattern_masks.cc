// Masks of patterns (TokenMasks::ByGroups): tokens by the groups of their code points, in buckets of those that have
// the same (TokenTrie::Bucket).
#include <algorithm>
#include <bit>

#include "sample/grammar/token_masks.h"

namespace ibid::grammar {
namespace {

constexpr size_t kMaxSingles = 12000;  // tokens that are looked at one by one, rather than walked
constexpr uint32_t kMinRun = 400;      // that begin alike and are worth a look at what they lead to

}  // namespace

// One of each group as the first.
std::array<StateId, kByteGroups> TokenMasks::after_groups(StateId state) {
  std::array<StateId, kByteGroups> to{};
  static_assert(kDead == 0);
  ByteGroups seen = 0;
  const uint32_t* row = states_.row(state);
  for (const ByteClass& c : byte_classes_) {
    const StateId next = states_.next_in(row, state, c.a_class);
    for (ByteGroups left = c.groups; left != 0; left &= left - 1) {
      StateId& known = to[static_cast<size_t>(std::countr_zero(left))];
      known = (seen & left & -left) == 0 || known == next ? next : kUnmade;
    }
    seen |= c.groups;
  }
  const auto add = [&](size_t kind, std::string_view one, uint32_t group) {
    const Ways found = ways(state, kind);
    to[group] = found == Ways::kNone ? kDead : found == Ways::kMany ? kUnmade : states_.after(state, one);
  };
  add(kNonAscii, kSomeNonAscii, kNonAsciiGroup);
  add(kFarSpace, kSomeFarSpace, kFarSpaceGroup);
  return to;
}

// `chain_` becomes the states on the way.
TokenMasks::Run TokenMasks::run_from(StateId state) {
  Run run{state, ~ByteGroups{0}, ~ByteGroups{0}};
  ByteGroups stay = 0;
  chain_.assign(1, state);
  while (!run.is_endless) {
    const Spread next = spread(chain_.back());
    run.any |= next.any;
    if ((next.all & kLowerGroups) != kLowerGroups) {
      run.is_known = stay == 0 && (run.all & next.any) == 0;
      break;
    }
    run.is_endless = next.to == chain_.back();
    run.all &= next.all | next.stay;
    run.ahead &= next.all;
    stay |= run.is_endless ? 0 : next.stay & ~next.all;
    if (run.is_endless || chain_.size() == kMaxCounted) break;
    chain_.push_back(next.to);
  }
  run.is_known |= run.is_endless;
  run.length = run.is_endless ? kAllCodes : static_cast<uint32_t>(chain_.size() - 1);
  for (StateId at : chain_) run.worst = std::max(run.worst, states_.shortest(at));
  return run;
}

// Where all lower case leads to one state, and from there perhaps on, tokens are taken by the groups that they have:
// whatever the group of the first code point, those after it run on from where that one leads. Each step below looks
// at all buckets: what is cut off of them, then kinds that come whole, then what the rest of each bucket needs.
class TokenMasks::ByGroups {
 public:
  ByGroups(TokenMasks& masks, Recipe& made) : m_(masks), trie_(*masks.trie_), made_(made) {}

  // False: this does not fit the state.
  bool make(StateId state) {
    if (!find_runs(state) || !cut_buckets()) return false;
    take_kinds();
    m_.path_.resize(trie_.longest() + 1);
    m_.path_[0] = state;
    for (uint32_t b = 0; b < trie_.first_tailed(); ++b) take_bucket(b);
    take_tailed();
    return true;
  }

 private:
  // Tokens of a bucket before `whole` may come, those from `single` on are checked one by one, the others may not come.
  struct Cut {
    uint32_t whole = 0, single = 0;
  };
  static constexpr uint8_t kNowhere = 255, kAsked = 254;  // instead of a run; checked one by one

  // What code points after one of each group do; the chain becomes the states after lower case, from `state` on.
  bool find_runs(StateId state) {
    const std::array<StateId, kByteGroups> following = m_.after_groups(state);
    const StateId second = following[0];
    if (second == kDead || second == kUnmade || following[1] != second) return false;
    run_of_.fill(kAsked);
    m_.runs_.assign(1, {});
    for (uint32_t g = 0; g < kByteGroups; ++g) {
      if (following[g] == kDead) run_of_[g] = kNowhere;
      if (following[g] == second) run_of_[g] = 0;
      if (run_of_[g] != kAsked || following[g] == kUnmade || trie_.n_first(g) < kMinRun) continue;
      const auto known = std::ranges::find(m_.runs_, following[g], &Run::from);
      run_of_[g] = static_cast<uint8_t>(known - m_.runs_.begin());
      if (known == m_.runs_.end()) m_.runs_.push_back(m_.run_from(following[g]));
    }
    first_run_ = m_.runs_[0] = m_.run_from(second);
    m_.chain_.insert(m_.chain_.begin(), state);
    m_.is_endless_ = first_run_.is_endless;
    up_to_ = m_.is_endless_ ? kAllCodes : first_run_.length + 1;
    for (const Run& run : m_.runs_) made_.worst = std::max(made_.worst, run.worst);
    return true;
  }

  // The tokens of a bucket, from its begin to here, that have at most so many code points.
  uint32_t up_to_length(uint32_t b, uint32_t length) const {
    if (length >= trie_.bucket(b).longest) return trie_.bucket_end(b);
    const auto lengths = trie_.bucket_lengths();
    const auto from = lengths.begin() + trie_.bucket(b).begin, to = lengths.begin() + trie_.bucket_end(b);
    return static_cast<uint32_t>(std::upper_bound(from, to, length) - lengths.begin());
  }

  Cut cut(uint32_t b) const {
    const TokenTrie::Bucket& bucket = trie_.bucket(b);
    const uint32_t end = trie_.bucket_end(b);
    const uint8_t r = run_of_[bucket.first];
    if (r == kNowhere) return {bucket.begin, end};
    if (r == kAsked) return {bucket.begin, bucket.begin};
    const Run& run = m_.runs_[r];
    if (bucket.rest != 0 && (bucket.rest & run.any) == 0) return {bucket.begin, end};
    const uint32_t longer = up_to_length(b, run.length + 1);
    if ((bucket.rest & ~run.all) == 0) return {longer, run.is_known ? end : longer};
    // The first one of no such group leads nowhere.
    const bool is_refused = (bucket.rest & run.any & ~run.all) == 0;
    return {bucket.begin, !is_refused ? bucket.begin : run.is_known ? end : longer};
  }

  // False: too many tokens would be looked at one by one.
  bool cut_buckets() {
    m_.cuts_.clear();
    size_t n_singles = 0;
    for (uint32_t b = 0; b < trie_.n_buckets(); ++b) {
      const Cut at = cut(b);
      m_.cuts_.push_back({at.whole, at.single});
      n_whole_ += at.whole - trie_.bucket(b).begin;
      n_singles += trie_.bucket_end(b) - at.single;
    }
    return n_singles <= kMaxSingles;
  }

  // From kinds of which all of up_to_ code points may come; where most tokens may, from all plain ones to those that
  // may not.
  void take_kinds() {
    if (n_whole_ > trie_.bucket_tokens().size() / 2) {
      made_.bits = trie_.plain_up_to(up_to_);
      for (size_t k = 0; k < kPlainKinds; ++k) is_taken_.set(k);
      return;
    }
    ByteGroups all = 0;
    for (uint32_t g = 0; g < kByteGroups; ++g)
      if (run_of_[g] == 0) all |= ByteGroups{1} << g & first_run_.all;
    made_.bits.assign(trie_.mask_words(), 0);
    for (size_t k = 0; k < kPlainKinds; ++k) {
      if ((groups_of_kind(k) & ~all) != 0) continue;
      is_taken_.set(k);
      const std::vector<uint32_t>& bits = trie_.kind(k).up_to_n(up_to_);
      for (size_t w = 0; w < bits.size(); ++w) made_.bits[w] |= bits[w];
    }
  }

  // The result of its kind, corrected where its cuts differ: by the bits of the whole bucket if these are kept, else
  // one by one.
  void take_bucket(uint32_t b) {
    const auto tokens = trie_.bucket_tokens();
    const TokenTrie::Bucket& bucket = trie_.bucket(b);
    const auto [whole, single] = m_.cuts_[b];
    const uint32_t end = trie_.bucket_end(b);
    const uint32_t there = is_taken_[bucket.kind] ? up_to_length(b, up_to_) : bucket.begin;  // up to here
    const std::vector<uint32_t>* bits = bucket.bits != TokenTrie::kNoBits ? &trie_.bucket_bits(bucket.bits) : nullptr;
    if (bits != nullptr && there > bucket.begin && whole == bucket.begin) {
      for (size_t w = 0; w < made_.bits.size(); ++w) made_.bits[w] &= ~(*bits)[w];
    } else if (bits != nullptr && there == bucket.begin && 2 * (whole - bucket.begin) > end - bucket.begin) {
      for (size_t w = 0; w < made_.bits.size(); ++w) made_.bits[w] |= (*bits)[w];
      for (uint32_t i = whole; i < end; ++i) clear(tokens[i]);
    } else {
      for (uint32_t i = there; i < whole; ++i) set(tokens[i]);
      for (uint32_t i = whole; i < std::min(there, single); ++i) clear(tokens[i]);
    }
    look_at_all(single, end);
  }

  // Tokens with a tail: along the chain from behind their code points on; others one by one.
  void take_tailed() {
    const uint32_t first_tailed = trie_.first_tailed();
    m_.takes_.assign(trie_.n_buckets() - first_tailed, 0);
    bool takes_any = false;
    for (uint32_t b = first_tailed; b < trie_.n_buckets(); ++b) {
      const TokenTrie::Bucket& bucket = trie_.bucket(b);
      const auto [whole, single] = m_.cuts_[b];
      if (run_of_[bucket.first] == 0 && (bucket.rest & ~first_run_.ahead) == 0) {
        m_.takes_[b - first_tailed] = 1;
        takes_any = true;
      } else {
        look_at_all(bucket.begin, whole);
      }
      look_at_all(single, trie_.bucket_end(b));
    }
    if (takes_any) m_.add_taken_tails(made_);
  }

  // Each from where it parts from the one before it, of which `reached` bytes led somewhere.
  void look_at_all(uint32_t from, uint32_t end) {
    const auto tokens = trie_.bucket_tokens();
    const Automaton& automaton = m_.states_.automaton();
    std::vector<StateId>& path = m_.path_;
    uint32_t reached = 0;
    for (uint32_t i = from; i < end; ++i) {
      const std::string_view bytes = trie_.bucket_bytes(i);
      uint32_t at = i == from ? 0 : trie_.bucket_shared()[i];
      if (at > reached) {
        clear(tokens[i]);
        continue;
      }
      StateId next = path[at];
      for (; at < bytes.size(); path[++at] = next) {
        next = m_.states_.next_in(m_.states_.row(next), next, automaton.class_of(static_cast<uint8_t>(bytes[at])));
        if (next == kDead) break;
      }
      reached = at;
      look_at(tokens[i], next);
    }
  }
  void look_at(int32_t token, StateId next) {
    if (next == kDead) return clear(token);
    m_.measure(next, made_.worst);
    set(token);
  }
  void set(int32_t token) { made_.bits[static_cast<size_t>(token) / 32] |= 1u << (token % 32); }
  void clear(int32_t token) { made_.bits[static_cast<size_t>(token) / 32] &= ~(1u << (token % 32)); }

  TokenMasks& m_;
  const TokenTrie& trie_;
  Recipe& made_;
  std::array<uint8_t, kByteGroups> run_of_;  // of m_.runs_, by the group of a token's first code point
  Run first_run_;                            // of lower case
  uint32_t up_to_ = 0;                       // so many code points of the first run lead somewhere
  size_t n_whole_ = 0;                       // tokens before their bucket's cut
  std::bitset<kTokenKinds> is_taken_;        // kinds that came whole
};

bool TokenMasks::make_by_groups(StateId state, Recipe& made) { return ByGroups(*this, made).make(state); }

}  // namespace ibid::grammar
