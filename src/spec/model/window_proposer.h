// WindowProposer: the target itself drafts, with its own weights, reading only the first and last tokens of a long
// sequence: self-speculation with a sparse cache as in MagicDec (Chen et al., "MagicDec: Breaking the
// Latency-Throughput Tradeoff for Long Context Generation with Speculative Decoding", 2024), with the sink and the
// window of StreamingLLM (Xiao et al., "Efficient Streaming Language Models with Attention Sinks", 2023). With a long
// context, a step reads more keys and values than weights; a draft that reads part of them costs proportionally less.
//
// It has no weights, no cache and no copy: a pass reads a view of the sequence's own blocks (kernels/forward_batch.h),
// with keys as stored, rotated by their true positions, and a query at its true position. StreamingLLM's positions
// (counted within its cache) would need different keys. The drafts' own keys and values are written where the
// sequence's next ones will be, on a loan (spec/target_seat.h), and verification overwrites them. It never has to catch
// up: everything that the target has computed of a sequence is available.
//
// Drafts of earlier proposers that it would replace are read in the same pass, a row each: where it samples the same
// token, the next row is already there and costs no pass. So a look-up or a small model drafts for the view and the
// view for the target, as in TriForce (Sun et al., "TriForce: Lossless Acceleration of Long Sequence Generation with
// Hierarchical Speculative Decoding", 2024), and the view's drafts are the same as without them.
//
// It samples as the target will (spec/drawn/drafting.h). A sequence that fits into the view is skipped: a draft would
// cost a step. One thread, the engine's; sampling uses the target's team. All memory but sequences' tokens is allocated
// at construction.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "kernels/batch_arrays.h"
#include "spec/drawn/drafting.h"
#include "spec/target_seat.h"

namespace ibid {

struct BlockPart {  // range of a sequence's blocks, [first, end)
  int32_t first = 0, end = 0;
};

struct WindowOptions {
  int32_t n_sink = 64;                     // tokens from a sequence's start, in whole blocks
  int32_t n_window = 512;                  // tokens before its end: at least so many, and less than a block more
  int32_t max_sequences = 16;              // at a time; further sequences get no drafts from it
  std::vector<TokenId> end_of_generation;  // never drafted
  bool always = false;  // drafts as many tokens as allowed, whatever they cost and however short the sequence
};

class WindowProposer final : public Proposer {
 public:
  // Errors: all layers of the model read a window of their own, or the model keeps no keys and values, or the view is
  // no smaller than its context.
  static Status check(const ModelFacts& facts, const WindowOptions& options);
  // Checks, then creates the proposer. `clock` outlives it.
  static Result<std::unique_ptr<WindowProposer>> create(const TargetSeat& seat, const WindowOptions& options,
                                                        const Clock& clock = steady_clock());

  // Runs six passes to measure their cost in advance. No sequence may run.
  void measure();

  void begin_step(const StepPrices& prices) override { drafting_.begin_step(prices); }
  double spent() const override { return drafting_.spent(); }
  void propose(const ProposalInput& input, Drafts& drafts) override;
  void propose_all(std::span<const Proposal> proposals) override;
  void forget(int64_t sequence) override;
  void self_check(const HeldSequence& seq) const override;

  // The view of a sequence of n tokens: the ranges of its blocks, the last of which contains its end. Returns their
  // number.
  int32_t view(int32_t n_tokens, std::span<BlockPart, 2> parts) const;

  // For tests: passes, and drafts drawn without a pass of their own.
  int64_t n_passes() const { return n_passes_; }
  int64_t n_spared() const { return n_spared_; }

 private:
  struct Seq : DraftSequence {
    TargetSeat::Loan loan;       // of this step
    std::vector<TokenId> ahead;  // drafts of earlier proposers, as long as they agree
    int32_t end_row = 0;         // end of its rows in the last pass
  };
  WindowProposer(const TargetSeat& seat, const WindowOptions& options, const Clock& clock);
  static Seq& seq_of(const DraftLane& lane) { return static_cast<Seq&>(*lane.seq); }
  static void drop(Seq& seq);
  void list_lanes(std::span<const Proposal> proposals);
  int32_t add(const BlockTable& blocks, int32_t sequence_len, int32_t position, std::span<const TokenId> tokens);
  int32_t compute();
  bool pass();
  void end_loans();

  TargetSeat seat_;
  WindowOptions options_;
  const Clock& clock_;
  Drafting drafting_;
  std::vector<Seq> seqs_;
  std::vector<DraftLane> lanes_;
  std::vector<TargetSeat::Loan> loans_;  // of this step, in their order
  BatchArrays arrays_;
  std::span<const float> logits_;  // of the last pass
  std::vector<TokenId> read_;      // of a sequence in a pass
  int64_t n_passes_ = 0, n_spared_ = 0;
};

}  // namespace ibid
