// Drafts: tokens proposed to follow a sequence, as a tree; a chain is the simple case. They are not part of the
// sequence: verification (the engine's rows of RowPurpose::kVerify) accepts those that the sampler would have drawn
// anyway, so an answer's bytes are the same as without drafts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/grow.h"
#include "base/ids.h"

namespace ibid {

inline constexpr int32_t kMaxDrafts = 64;  // per sequence and step

struct Drafts {
  std::vector<TokenId> tokens;
  std::vector<int32_t>
      parents;  // of each, the index of the one before it, smaller than its own; -1: the sequence's end
  // Per draft, the distribution that it was drawn from, [V], owned by the proposer and valid until the next step;
  // empty: it was not sampled.
  std::vector<std::span<const float>> q;
  std::vector<uint8_t> is_distinct;  // per draft: 1: drawn from q without the siblings before it, normalised again
  std::vector<float>
      likely;  // per draft, the probability that it and all drafts on the path to it are accepted; 1: always verify
  bool must_run = false;  // in a replay: this number of drafts ran; grammar, clock and prices do not change it

  int32_t size() const { return static_cast<int32_t>(tokens.size()); }
  bool empty() const { return tokens.empty(); }
  void clear() {
    cut(0);
    must_run = false;
  }
  // Keeps at most the first n.
  void cut(int32_t n) {
    if (n >= size()) return;
    tokens.resize(static_cast<size_t>(n));
    parents.resize(static_cast<size_t>(n));
    likely.resize(static_cast<size_t>(n));
    q.resize(static_cast<size_t>(n));
    is_distinct.resize(static_cast<size_t>(n));
  }
  void add(TokenId token, int32_t parent, float is_likely = 1, std::span<const float> drawn_from = {},
           bool was_distinct = false) {
    grow(likely, likely.size() + 1);  // where it throws, all are still of one length
    grow(parents, parents.size() + 1);
    grow(q, q.size() + 1);
    grow(is_distinct, is_distinct.size() + 1);
    tokens.push_back(token), parents.push_back(parent), likely.push_back(is_likely), q.push_back(drawn_from);
    is_distinct.push_back(was_distinct ? 1 : 0);
  }

  // Number of tokens on the path from the sequence's end to draft i, inclusive: its position is that of the sequence's
  // last token plus this.
  int32_t depth(int32_t i) const;
  // Among the first n drafts, the successor of `parent` (-1: the sequence) that equals `token`; -1: none.
  int32_t child(int32_t parent, TokenId token, int32_t n) const;
  // Whether each of the first n follows the one before it.
  bool is_chain(int32_t n) const;
  // The first draft after the sequence, the first one after that, and so on; at most n.
  void first_way(size_t n, std::vector<TokenId>& out) const;
};

}  // namespace ibid
