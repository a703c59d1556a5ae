// LookAheadProposer: drafts from the tokens that the target draws after rejected drafts ("look-ahead decoding", Fu,
// Bailis, Stoica and Zhang, *Break the Sequential Dependency of LLM Inference Using Lookahead Decoding*, 2024, sections
// 3.1 and 3.2). A window of drafts is verified as a chain; the rows after the first rejected one were computed too, and
// the tokens drawn from them, with the request's own noise, are the next window: Jacobi's iteration, whose fixed point
// is the sequence's true continuation. Each rejected draft and its successor are stored in a pool of pairs; the chain
// follows the pool from the sequence's last token, and the window fills the rest.
//
// Unlike in the paper, the window has one level, in the rows that verification has anyway, so it needs no attention
// mask of its own and no extra rows. Rejected drafts of the look-up feed it too.
//
// Uses a few KiB per sequence; drafting takes a few look-ups per step. The engine reads the rejected rows: one draw
// each.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "spec/acceptance.h"
#include "spec/proposer.h"

namespace ibid {

struct LookAheadOptions {
  int32_t n_window = 6;        // number of iterated drafts; at least 1
  int32_t max_sequences = 16;  // at a time; further sequences get no drafts
  std::vector<TokenId> end_of_generation;
  bool always = false;  // for tests: proposes the whole window, however unlikely
};

class LookAheadProposer final : public Proposer, public ProposerExtras {
 public:
  static constexpr int32_t kMostWindow = 16;

  explicit LookAheadProposer(LookAheadOptions options);
  // Maximum memory in bytes.
  static int64_t bytes_of(int32_t max_sequences);

  bool reads_refused() const override { return true; }
  void refused(int64_t sequence, int32_t n_tokens, std::span<const RefusedDraft> drafts) override;
  ProposerExtras* extras() override { return this; }
  void propose(const ProposalInput& input, Drafts& drafts) override;
  void forget(int64_t sequence) override;

 private:
  // The last known successor of each token: a hash table with one pair per hash, replaced by later pairs.
  class Pool {
   public:
    void clear() { pairs_.fill({TokenId{-1}, TokenId{-1}}); }
    void add(TokenId token, TokenId following) { pairs_[place(token)] = {token, following}; }
    std::optional<TokenId> following(TokenId token) const {
      const RefusedDraft& pair = pairs_[place(token)];
      return pair.token == token ? std::optional(pair.following) : std::nullopt;
    }

   private:
    static constexpr size_t kPlaces = 1024;
    static size_t place(TokenId token) { return (static_cast<uint32_t>(raw(token)) * 2654435761U) >> 22; }
    std::array<RefusedDraft, kPlaces> pairs_;
  };
  struct Seq {
    int64_t sequence = -1;     // -1: none
    int32_t n_window_at = -1;  // sequence length that the window follows
    std::vector<TokenId> window;
    Pool pool;
    Acceptance acceptance;
    int32_t n_drafted_at = -1;  // sequence length for which `draft` was proposed as the next token
    TokenId draft = {};
    int32_t kind = 0;  // its kind, as a match length of Acceptance
  };
  Seq* seq_of(int64_t sequence);
  TokenId filler(const ProposalInput& input, int32_t i) const;

  LookAheadOptions options_;
  std::vector<Seq> seqs_;
};

}  // namespace ibid
