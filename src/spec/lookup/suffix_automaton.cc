#include "spec/lookup/suffix_automaton.h"

#include <algorithm>
#include <bit>
#include <random>

#include "base/check.h"

namespace ibid {
namespace {

constexpr int kMaxOlder = 16;  // states updated with a late occurrence, per token

size_t table_size(int32_t max_tokens) { return std::bit_ceil(4 * static_cast<size_t>(max_tokens) + 1); }

}  // namespace

SuffixAutomaton::SuffixAutomaton(int32_t max_tokens) : max_tokens_(max_tokens) {
  std::random_device random;
  key_ = uint64_t{random()} << 32 | random();
  const auto n = static_cast<size_t>(max_tokens);
  tokens_.reserve(n);
  states_.reserve(2 * n + 1);
  edges_.reserve(3 * n + 1);
  table_.resize(table_size(max_tokens));
  clear();
}

int64_t SuffixAutomaton::bytes_of(int32_t max_tokens) {
  return int64_t{max_tokens} * static_cast<int64_t>(sizeof(TokenId) + 2 * sizeof(State) + 3 * sizeof(Edge)) +
         static_cast<int64_t>(table_size(max_tokens) * sizeof(int32_t));
}

void SuffixAutomaton::clear() {
  tokens_.clear();
  states_.clear();
  edges_.clear();
  std::ranges::fill(table_, -1);
  whole_ = add_state({});
  match_ = {};
}

int32_t SuffixAutomaton::add_state(const State& state) {
  states_.push_back(state);
  return static_cast<int32_t>(states_.size()) - 1;
}

// The table index of the edge, or where it would be inserted.
size_t SuffixAutomaton::place_of(int32_t from, TokenId token) const {
  uint64_t h = (uint64_t{static_cast<uint32_t>(from)} << 32 | static_cast<uint32_t>(raw(token))) ^ key_;
  h = (h ^ h >> 32) * 0x9E3779B97F4A7C15;  // Fibonacci hashing (Knuth 6.4), twice
  h = (h ^ h >> 32) * 0x9E3779B97F4A7C15;
  const size_t mask = table_.size() - 1;
  for (size_t i = (h >> 32) & mask;; i = (i + 1) & mask) {
    if (table_[i] < 0) return i;
    const Edge& edge = edges_[static_cast<size_t>(table_[i])];
    if (edge.from == from && edge.token == token) return i;
  }
}

SuffixAutomaton::Edge* SuffixAutomaton::find(int32_t from, TokenId token) {
  const int32_t edge = table_[place_of(from, token)];
  return edge < 0 ? nullptr : &edges_[static_cast<size_t>(edge)];
}

void SuffixAutomaton::add_edge(int32_t from, TokenId token, int32_t to) {
  const auto index = static_cast<int32_t>(edges_.size());
  State& state = states_[static_cast<size_t>(from)];
  edges_.push_back({.from = from, .to = to, .token = token, .next = state.first_edge});
  state.first_edge = index;
  table_[place_of(from, token)] = index;
}

// Clones a state, for its sequences of at most `len` tokens.
int32_t SuffixAutomaton::clone(int32_t state, int32_t len) {
  State copy = states_[static_cast<size_t>(state)];
  const int32_t first = copy.first_edge;
  copy.first_edge = -1;
  copy.len = len;
  const int32_t made = add_state(copy);
  for (int32_t e = first; e >= 0; e = edges_[static_cast<size_t>(e)].next) {
    const Edge edge = edges_[static_cast<size_t>(e)];
    add_edge(made, edge.token, edge.to);
  }
  return made;
}

void SuffixAutomaton::add(TokenId token) {
  DCHECK(!is_full());
  tokens_.push_back(token);
  const auto n = static_cast<int32_t>(tokens_.size());
  const auto state = [this](int32_t i) -> State& { return states_[static_cast<size_t>(i)]; };
  const int32_t added = add_state({.len = n, .first_end = n, .last_end = n});
  int32_t p = whole_;
  Edge* edge = nullptr;
  for (; p >= 0 && (edge = find(p, token)) == nullptr; p = state(p).link) add_edge(p, token, added);
  if (p < 0) {
    state(added).link = 0;
  } else if (const int32_t q = edge->to; state(q).len == state(p).len + 1) {
    state(added).link = q;
  } else {
    const int32_t made = clone(q, state(p).len + 1);
    for (; p >= 0 && (edge = find(p, token)) != nullptr && edge->to == q; p = state(p).link) edge->to = made;
    state(q).link = state(added).link = made;
  }
  whole_ = added;
  int32_t older = state(added).link;
  match_ = {state(older).len, state(older).first_end, state(older).last_end};
  // Later occurrences are better: recent tokens are the likeliest to be repeated.
  for (int i = 0; i < kMaxOlder && older > 0; ++i, older = state(older).link) state(older).last_end = n;
}

void SuffixAutomaton::follow(TokenId token, Cursor& cursor) const {
  const Edge* edge = nullptr;
  while ((edge = find(cursor.state, token)) == nullptr && cursor.state > 0) {
    cursor.state = states_[static_cast<size_t>(cursor.state)].link;
    cursor.len = states_[static_cast<size_t>(cursor.state)].len;
  }
  cursor.state = edge == nullptr ? 0 : edge->to;
  cursor.len = edge == nullptr ? 0 : cursor.len + 1;
}

}  // namespace ibid
