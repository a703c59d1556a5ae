// WindowProposer: the target itself drafts, with its own weights, reading of a long sequence its first tokens and its
// last ones only: self-speculation with a sparse cache as MagicDec has it (Chen et al., "MagicDec: Breaking the
// Latency-Throughput Tradeoff for Long Context Generation with Speculative Decoding", 2024), over the sink and the
// window of StreamingLLM (Xiao et al., "Efficient Streaming Language Models with Attention Sinks", 2023). After a long
// sequence a step reads more keys and values than weights; a draft that reads a part of them costs that much less.
//
// It has no weights, no cache and no copy: a pass reads a view of the sequence's own blocks (kernels/forward_batch.h),
// with keys as they lie there, rotated by their true positions, and a query at its true position. What StreamingLLM
// does to positions (counting them again within its cache) would need other keys. The drafts' own keys and values go
// where the sequence's next ones will, on a loan (spec/target_seat.h), and verification writes over them.
// Nothing has to be caught up with: what the target has computed of a sequence is there.
//
// FixedProposer of others that it would replace are read by the same pass, each with its row: where it draws what they
// say, the next row is there and costs no pass. So a look-up or a small model drafts for the view and the view for the
// target, as TriForce has it (Sun et al., "TriForce: Lossless Acceleration of Long Sequence Generation with
// Hierarchical Speculative Decoding", 2024), and what the view proposes is what it would have proposed without them.
//
// It draws as the target will (spec/drafting.h). A sequence that the view holds whole is left alone: a draft would cost
// a step. One thread, the engine's; draws use the target's team. All memory but sequences' tokens is held from the
// start.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "kernels/batch_arrays.h"
#include "spec/drafting.h"
#include "spec/target_seat.h"

namespace ibid {

struct BlockPart {  // of a sequence's blocks, [first, end)
  int32_t first = 0, end = 0;
};

struct WindowOptions {
  int32_t n_sink = 64;                     // tokens from a sequence's start, in whole blocks
  int32_t n_window = 512;                  // tokens before its end, at least; less than a block more
  int32_t max_texts = 16;                  // at a time; others have no drafts of it
  std::vector<TokenId> end_of_generation;  // which are not drafted
  bool always = false;  // drafts as many as it may, whatever they cost and however short the sequence
};

class WindowProposer final : public Proposer {
 public:
  // Refuses a model whose layers all read a window of their own, or that keeps nothing, and a view that is no less
  // than its context.
  static Status check(const ModelFacts& facts, const WindowOptions& options);
  // The same, then makes one. `clock` outlives it.
  static Result<std::unique_ptr<WindowProposer>> create(const TargetSeat& seat, const WindowOptions& options,
                                                        const Clock& clock = steady_clock());

  // Runs six passes, so that their price is known before anybody asks. Nothing may run.
  void measure();

  void begin_step(const StepPrices& prices) override { drafting_.begin_step(prices); }
  double spent() const override { return drafting_.spent(); }
  void propose(const ProposalInput& input, Drafts& drafts) override;
  void propose_all(std::span<const Proposal> proposals) override;
  void forget(int64_t sequence) override;
  void self_check(const HeldText& text) const override;

  // What is read of a text of n tokens: the parts of its blocks, the last of which holds its end; how many there are.
  int32_t view(int32_t n_tokens, std::span<BlockPart, 2> parts) const;

  // For tests: passes, and drafts that were drawn without one.
  int64_t n_passes() const { return n_passes_; }
  int64_t n_spared() const { return n_spared_; }

 private:
  struct Text : DraftText {
    TargetSeat::Loan loan;       // of this step
    std::vector<TokenId> ahead;  // what others say of the sequence's next tokens, as long as drafts agree
    int32_t end_row = 0;         // after those that the last pass computed of it
  };
  WindowProposer(const TargetSeat& seat, const WindowOptions& options, const Clock& clock);
  static Text& text_of(const DraftLane& lane) { return static_cast<Text&>(*lane.text); }
  static void drop(Text& text);
  void list_lanes(std::span<const Proposal> proposals);
  int32_t add(const BlockTable& blocks, int32_t n_text, int32_t position, std::span<const TokenId> tokens);
  int32_t compute();
  bool pass();
  void end_loans();

  TargetSeat seat_;
  WindowOptions options_;
  const Clock& clock_;
  Drafting drafting_;
  std::vector<Text> texts_;
  std::vector<DraftLane> lanes_;
  std::vector<TargetSeat::Loan> loans_;  // of this step, in their order
  BatchArrays arrays_;
  std::span<const float> logits_;  // of the last pass
  std::vector<TokenId> read_;      // of a sequence in a pass
  int64_t n_passes_ = 0, n_spared_ = 0;
};

}  // namespace ibid
