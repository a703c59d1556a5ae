// EagleProposer: an EAGLE head (spec/eagle_head.h) as a proposer of chains and trees. It is told what the target's
// layers made of each token of a sequence, keeps what the head's attention reads of them, and drafts from the pair at
// the sequence's end, its own states standing in for those that the target has not made yet. What drafts left is
// overwritten by what the target makes of the tokens that were taken over.
//
// Where a sequence's beginning came from the prefix cache nobody told of it: then the head reads from there on, as if
// the sequence began there. So it does where its keys and values found no room, and a sequence that finds no place has
// no drafts of it. All that changes which drafts there are, and no answer.
//
// Of a tree's drafts each sees those on the way to it alone, in whichever slots they lie (kernels/forward_batch.h).
//
// How many are drafted is chosen as a draft model's are (spec/drafting.h), trees as spec/tree_drafting.h says. One
// thread, the engine's; draws use the stream's team. All memory but sequences' tokens is held from the start.
#pragma once

#include <limits>
#include <memory>
#include <vector>

#include "base/clock.h"
#include "cache/block_cache.h"
#include "kernels/batch_arrays.h"
#include "spec/drafting.h"
#include "spec/eagle_head.h"
#include "spec/tree_drafting.h"

namespace ibid {

struct EagleOptions {
  int32_t vocab_size = 0;                  // V of the target
  std::vector<TokenId> end_of_generation;  // which are not drafted
  bool always = false;                     // drafts as many as it may, whatever they cost
  int32_t branches = 1;                    // drafts for one place at most (TreeOptions); 1: chains
  // Where more sequences run it reads and drafts for those alone whose drafts are pinned: what others' would bring is
  // less than what reading costs.
  int32_t most_running = std::numeric_limits<int32_t>::max();
};

class EagleProposer final : public Proposer, public ProposerExtras {
 public:
  // Pairs of a sequence that wait to be read: more of them are read at once, for any proposer.
  static constexpr int32_t kMostWaiting = 32;
  // Of trees: drafts of a sequence that are drawn after in one pass, and those for one place that a server has.
  static constexpr int32_t kWidth = 3, kBranches = 3;
  // For so many sequences at a time, pairs of a sequence at most and steps of the target; other members as they are.
  // Two whole contexts of keys and values, or many shorter sequences.
  static EagleSizes sizes(int32_t n_texts, int32_t context_len, int32_t step_tokens);

  // `head` was loaded with sizes of the above; `stream` and `clock` outlive it.
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
  void self_check(const HeldText& text) const override;

  // For tests.
  int64_t n_passes() const { return n_passes_; }
  int64_t n_read() const { return n_read_; }  // pairs, after which nothing was drafted
  const BlockCache& cache() const { return cache_; }

 private:
  // Pairs first .. first + n_read - 1, by the position of their first token, are read; n_waiting wait after them. Pair
  // i has slot i - first.
  struct Text : DraftText {
    int32_t first = 0, n_read = 0, n_waiting = 0;
    bool keeps_last = false;  // what waited last is read and still there, in the first place
    int32_t n_written = 0;    // n_read, and the drafts' after
    BlockTable blocks;
    std::vector<TokenId> written;  // the second token of the pair in each slot, for self_check()
    std::vector<TokenId> waiting;  // [kMostWaiting]: their second tokens
    std::vector<float> features;   // [kMostWaiting, feature_len]
    int32_t end() const { return first + n_read + n_waiting; }
  };

  void drop(Text& text);
  void forget_read(Text& text);
  void add_waiting(Text& text, TokenId token, int32_t tap_row);
  bool read_waiting(Text& text);
  bool has_end(Text& text, int32_t n_tokens) const;
  void list_lanes(std::span<const Proposal> proposals);
  void first_pass();
  void next_pass();
  void draw(double begin);
  bool reserve(Text& text, int32_t n);
  void drop_without_room();
  void add_node(Text& text, DraftNode& node, bool is_alone);
  static void note_written(Text& text, int32_t slot, TokenId token);
  void add_pairs(Text& text, bool is_wanted);
  void load_draft(const DraftNode& node);
  void end_sequence(const Text& text);
  void compute();
  void measure();
  static Text& text_of(const DraftLane& lane) { return static_cast<Text&>(*lane.text); }

  std::unique_ptr<EagleHead> head_;
  Stream& stream_;
  const Clock& clock_;
  BlockCache cache_;
  int32_t most_running_;
  Drafting drafting_;
  TreeDrafting trees_;
  std::vector<Text> texts_;
  std::vector<DraftLane> lanes_;
  EagleHead::Said said_;           // of the last one
  std::vector<BlockCopy> copies_;  // always empty: nothing is shared
  BatchArrays arrays_;
  std::vector<int32_t> path_;  // of a draft
  int64_t n_passes_ = 0, n_read_ = 0;
};

}  // namespace ibid
