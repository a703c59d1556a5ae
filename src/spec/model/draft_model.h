// DraftModel: a small model that drafts for the target ("speculative decoding": Leviathan, Kalman, Matias, "Fast
// Inference from Transformers via Speculative Decoding", 2023; Chen et al., "Accelerating Large Language Model Decoding
// with Speculative Sampling", 2023). It has the target's vocabulary and a KV cache of its own.
//
// It samples as the target will (spec/drawn/drafting.h).
//
// Computed keys and values stay valid as far as the sequence agrees: they are truncated to the accepted tokens, and
// missing tokens are computed with the next draft, a long prompt in small pieces that hardly lengthen a step. All
// sequences of a step share each pass. The number of drafts is chosen like the step's drafts (draft_choice.h), with the
// cost of its own passes estimated from earlier ones; a sequence is left alone if catching up with it would not pay off
// in time.
//
// With a window, it reads n_sink tokens at the start of a longer sequence and n_window to twice as many at its end, as
// StreamingLLM does (Xiao et al., "Efficient Streaming Language Models with Attention Sinks", 2023, section 3.2) and as
// TriForce's smallest tier does. Positions count the tokens read, so a model can draft for sequences that are longer
// than its context. Keys are stored rotated by position: when the window moves, once per n_window tokens, its tokens
// after the sink are computed again ("sliding window with re-computation", section 2 there); the sink stays.
//
// One thread, the engine's; sampling uses the stream's team. All memory but sequences' tokens is allocated at
// construction.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "cache/block_cache.h"
#include "kernels/batch_arrays.h"
#include "spec/drawn/drafting.h"
#include "worker/worker.h"

namespace ibid {

struct DraftModelOptions {
  KvTypes kv_dtype;
  int32_t block_len = 16;            // B
  int64_t kv_bytes = 0;              // at least one sequence of longest_read() tokens
  int32_t step_tokens = 256;         // T of the largest pass
  int32_t max_sequences = 8;         // at a time; further sequences get no drafts from it
  int32_t vocab_size = 0;            // V of the target; its own rows may be shorter or padded
  int32_t n_sink = 0, n_window = 0;  // n_window 0: the whole sequence is read
  bool prefix_cache = true;
  std::vector<TokenId> end_of_generation;  // never drafted
  bool always = false;                     // drafts as many tokens as allowed, whatever they cost
};

class DraftModel final : public Proposer {
 public:
  // Maximum tokens read of a sequence, drafts included.
  static int32_t longest_read(const DraftModelOptions& options, int32_t context_len);
  // Error: the window does not fit into a context of context_len tokens.
  static Status check(const DraftModelOptions& options, int32_t context_len);
  // Checks, then creates the proposer. `stream` and `clock` outlive it.
  static Result<std::unique_ptr<DraftModel>> create(std::unique_ptr<ForwardPass> model, Stream& stream,
                                                    const DraftModelOptions& options,
                                                    const Clock& clock = steady_clock());
  ~DraftModel() override;

  // Runs six short passes to measure their cost in advance. No sequence may be held.
  void measure();

  void begin_step(const StepPrices& prices) override;
  bool take_next() override { return worker_->take_next(); }
  // Excludes steps that read sequences that are far behind: whether that pays is decided separately.
  double spent() const override { return reads_pieces_ ? 0 : drafting_.spent(); }
  void propose(const ProposalInput& input, Drafts& drafts) override;
  void propose_all(std::span<const Proposal> proposals) override;
  void forget(int64_t sequence) override;
  void self_check(const HeldSequence& seq) const override;

  // For tests.
  int64_t n_computed_tokens() const { return n_computed_tokens_; }
  int64_t n_passes() const { return n_passes_; }
  const BlockCache& cache() const { return cache_; }

 private:
  struct Seq : DraftSequence {
    int32_t n_left_out = 0;  // tokens skipped after the sink; the counts below exclude them
    int32_t n_computed = 0;  // tokens with keys and values in the cache; fewer than tokens
    BlockTable blocks;
    std::vector<TokenId> written;  // tokens whose keys and values lie in the slots, for self_check()
    int32_t n_published = 0;
    ScopeId scope = ScopeId::kNone;
  };
  using Lane = DraftLane;  // of a Seq

  DraftModel(std::unique_ptr<Worker> worker, const DraftModelOptions& options, const Clock& clock, int32_t n_blocks);
  Seq* seq_of(const ProposalInput& input);
  void drop(Seq& seq);
  void drop_all();
  void follow(Seq& seq, const ProposalInput& input);
  void cut(Seq& seq);
  void list_lanes(std::span<const Proposal> proposals);
  bool is_worth_reading(const Lane& lane) const;
  void share_first_pass();
  int32_t reserve();
  std::span<const float> compute();
  bool pass();
  void build();
  TokenId token_at(const Seq& seq, int32_t i) const {  // the i-th token read
    return seq.tokens[static_cast<size_t>(i < options_.n_sink ? i : i + seq.n_left_out)];
  }
  static Seq& seq_of(const Lane& lane) { return static_cast<Seq&>(*lane.seq); }
  static int32_t n_missing(const Seq& seq) { return seq.sequence_len - seq.n_left_out - seq.n_computed; }

  std::unique_ptr<Worker> worker_;
  DraftModelOptions options_;
  const Clock& clock_;
  BlockCache cache_;
  std::vector<Seq> seqs_;
  std::vector<Lane> lanes_;
  Drafting drafting_;
  bool reads_pieces_ = false;  // in this step
  std::vector<BlockCopy> copies_;
  BatchArrays arrays_;
  int64_t n_computed_tokens_ = 0, n_passes_ = 0;
};

}  // namespace ibid
