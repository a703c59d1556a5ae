// LookAheadProposer: drafts from what the target says after drafts that were wrong ("look-ahead decoding", Fu,
// Bailis, Stoica and Zhang, *Break the Sequential Dependency of LLM Inference Using Lookahead Decoding*, 2024,
// sections 3.1 and 3.2). A window of drafts is verified as a chain; the rows after the first refused one were
// computed with it, and what is drawn from them, with the request's own noise, is the next window: Jacobi's iteration,
// of which a sequence's true continuation is the fixed point. Each refused draft and what came after it go into a pool
// of pairs, which is asked how the sequence's last token went on there, and that one's follower, and so on; the window
// fills the chain's rest.
//
// Unlike the paper's there is one level of the window, in the rows that verification has anyway, so that it needs no
// attention mask of its own and takes no row that it does not verify. Look-up's refused drafts feed it too.
//
// Holds a few KiB a sequence; its drafting is a few look-ups a step, and reading refused rows is the engine's: a draw
// for each.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "spec/acceptance.h"
#include "spec/proposer.h"

namespace ibid {

struct LookAheadOptions {
  int32_t n_window = 6;    // drafts that are iterated; at least 1
  int32_t max_texts = 16;  // at a time; others have no drafts
  std::vector<TokenId> end_of_generation;
  bool always = false;  // proposes the whole window however unlikely, for tests
};

class LookAheadProposer final : public Proposer, public ProposerExtras {
 public:
  static constexpr int32_t kMostWindow = 16;

  explicit LookAheadProposer(LookAheadOptions options);
  // What one holds at most.
  static int64_t bytes_of(int32_t max_texts);

  bool reads_refused() const override { return true; }
  void refused(int64_t sequence, int32_t n_tokens, std::span<const RefusedDraft> drafts) override;
  ProposerExtras* extras() override { return this; }
  void propose(const ProposalInput& input, Drafts& drafts) override;
  void forget(int64_t sequence) override;

 private:
  // What came after a token, last: a table with a place for each of its hashes, where later pairs replace earlier
  // ones.
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
  struct Text {
    int64_t sequence = -1;     // -1: none
    int32_t n_window_at = -1;  // tokens of the sequence that the window stands after
    std::vector<TokenId> window;
    Pool pool;
    Acceptance acceptance;
    int32_t n_drafted_at = -1;  // tokens that the sequence had when `draft` was its next one's
    TokenId draft = {};
    int32_t kind = 0;  // of it, as a length of Acceptance
  };
  Text* text_of(int64_t sequence);
  TokenId filler(const ProposalInput& input, int32_t i) const;

  LookAheadOptions options_;
  std::vector<Text> texts_;
};

}  // namespace ibid
