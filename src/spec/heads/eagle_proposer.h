// EagleProposer: an EAGLE head (spec/heads/eagle_head.h) as a proposer of chains and trees. It receives the target's
// hidden states of each token of a sequence, stores the keys and values of the head's attention, and drafts from the
// pair at the sequence's end; the head's own states replace those that the target has not computed yet. Keys and values
// of drafts are overwritten by those of the accepted tokens, computed from the target's states.
//
// If a sequence's prefix came from the prefix cache, there are no hidden states of it: the head then reads from there
// on, as if the sequence began there. The same happens if there is no room for its keys and values; a sequence without
// an entry gets no drafts. This changes which drafts are proposed, but no answer.
//
// Each draft of a tree attends only to the drafts on the path to it, in any slots (kernels/forward_batch.h).
//
// The number of drafts is chosen as for a draft model (spec/drawn/drafting.h), trees by spec/drawn/tree_drafting.h. One
// thread, the engine's; sampling uses the stream's team. All memory but sequences' tokens is allocated at construction.
#pragma once

#include <limits>
#include <memory>
#include <vector>

#include "base/clock.h"
#include "cache/block_cache.h"
#include "kernels/batch_arrays.h"
#include "spec/drawn/drafting.h"
#include "spec/drawn/tree_drafting.h"
#include "spec/heads/eagle_head.h"

namespace ibid {

struct EagleOptions {
  int32_t vocab_size = 0;                  // V of the target
  std::vector<TokenId> end_of_generation;  // never drafted
  bool always = false;                     // drafts as many tokens as allowed, whatever they cost
  int32_t branches = 1;                    // maximum drafts for one place (TreeOptions); 1: chains
  // With more running sequences, it reads and drafts only for sequences with pinned drafts: other drafts would gain
  // less than reading costs.
  int32_t most_running = std::numeric_limits<int32_t>::max();
};

class EagleProposer final : public Proposer, public ProposerExtras {
 public:
  // Maximum pairs of a sequence that wait to be read; further ones force a pass that reads them.
  static constexpr int32_t kMostWaiting = 32;
  // For trees: drafts of a sequence expanded in one pass, and drafts for one place in a server.
  static constexpr int32_t kWidth = 3, kBranches = 3;
  // Sizes for n_sequences sequences at a time of at most context_len pairs, and target steps of step_tokens; other
  // members keep their defaults. Keys and values for two whole contexts, or many shorter sequences.
  static EagleSizes sizes(int32_t n_sequences, int32_t context_len, int32_t step_tokens);

  // `head` was loaded with sizes(); `stream` and `clock` outlive the proposer.
  EagleProposer(std::unique_ptr<EagleHead> head, Stream& stream, const EagleOptions& options,
                const Clock& clock = steady_clock());

  void begin_step(const StepPrices& prices) override { drafting_.begin_step(prices); }
  bool take_next() override { return head_->take_next(); }
  double spent() const override { return drafting_.spent(); }
  const HiddenStates* taps() const override { return &head_->taps(); }
  void read(const ReadTokens& tokens) override;
  ProposerExtras* extras() override { return this; }
  void propose(const ProposalInput& input, Drafts& drafts) override;
  void propose_all(std::span<const Proposal> proposals) override;
  void forget(int64_t sequence) override;
  void self_check(const HeldSequence& seq) const override;

  // For tests.
  int64_t n_passes() const { return n_passes_; }
  int64_t n_read() const { return n_read_; }  // pairs read without drafting after them
  const BlockCache& cache() const { return cache_; }

 private:
  // Pairs first .. first + n_read - 1, by the position of their first token, have been read; n_waiting pairs wait after
  // them. Pair i has slot i - first.
  struct Seq : DraftSequence {
    int32_t first = 0, n_read = 0, n_waiting = 0;
    bool keeps_last = false;  // the last waiting pair has been read and is still in the first place
    int32_t n_written = 0;    // n_read plus the drafts
    BlockTable blocks;
    std::vector<TokenId> written;  // second token of the pair in each slot, for self_check()
    std::vector<TokenId> waiting;  // [kMostWaiting]: second tokens of the waiting pairs
    int32_t kept = 0;              // of the head's kept rows, the first of its kMostWaiting: their features
    int32_t end() const { return first + n_read + n_waiting; }
  };

  void drop(Seq& seq);
  void forget_read(Seq& seq);
  void add_waiting(Seq& seq, TokenId token, int32_t tap_row);
  void keep_added();
  bool read_waiting(Seq& seq);
  bool has_end(Seq& seq, int32_t n_tokens) const;
  void list_lanes(std::span<const Proposal> proposals);
  void first_pass();
  void next_pass();
  void draw(double begin);
  void clear_pass();
  bool reserve(Seq& seq, int32_t n);
  void drop_without_room();
  void add_node(Seq& seq, DraftNode& node, bool is_alone);
  static void note_written(Seq& seq, int32_t slot, TokenId token);
  void add_pairs(Seq& seq, bool is_wanted);
  void end_sequence(const Seq& seq);
  void compute();
  void measure();
  static Seq& seq_of(const DraftLane& lane) { return static_cast<Seq&>(*lane.seq); }

  std::unique_ptr<EagleHead> head_;
  Stream& stream_;
  const Clock& clock_;
  BlockCache cache_;
  int32_t most_running_;
  Drafting drafting_;
  TreeDrafting trees_;
  std::vector<Seq> seqs_;
  std::vector<DraftLane> lanes_;
  EagleHead::PassResult result_;   // of the last pass
  std::vector<BlockCopy> copies_;  // always empty: nothing is shared
  BatchArrays arrays_;
  std::vector<int32_t> path_;                  // path to a draft
  std::vector<int32_t> tap_rows_, kept_rows_;  // of pairs added whose features are not kept yet
  std::vector<int32_t> pass_rows_;  // of each row of the next pass: the kept row or the result's it is made of
  int64_t n_passes_ = 0, n_read_ = 0;
};

}  // namespace ibid
