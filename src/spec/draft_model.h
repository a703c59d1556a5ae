// DraftModel: a small model that writes ahead of the target ("speculative decoding": Leviathan, Kalman, Matias, "Fast
// Inference from Transformers via Speculative Decoding", 2023; Chen et al., "Accelerating Large Language Model Decoding
// with Speculative Sampling", 2023), of the target's vocabulary, with keys and values of its own.
//
// It draws as the target will (spec/drafting.h).
//
// What it computes of a sequence stays as long as the sequence agrees: it is cut to what was accepted, and what is
// missing is computed with the next draft, a long prompt in pieces that a step hardly notices. All sequences of a step
// share each pass. How many tokens it draws is chosen as the step's drafts are (draft_choice.h), its own passes priced
// too, by what they took so far; a sequence that it could not catch up with in time to gain by it is left alone.
//
// With a window it reads of a longer sequence n_sink tokens of the begin and n_window to twice as many of the end, as
// StreamingLLM does (Xiao et al., "Efficient Streaming Language Models with Attention Sinks", 2023, section 3.2) and as
// TriForce has its smallest tier do. Positions count what is read, so that a model drafts after sequences that are
// longer than its context. Keys lie rotated by their positions: where the window moves on, which is once for n_window
// tokens, what it holds then is computed again ("sliding window with re-computation", section 2 there), after the sink,
// which stays.
//
// One thread, the engine's; draws use the stream's team. All memory but sequences' tokens is held from the start.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "cache/block_cache.h"
#include "kernels/batch_arrays.h"
#include "spec/drafting.h"
#include "worker/worker.h"

namespace ibid {

struct DraftModelOptions {
  DType kv_dtype = DType::kF16;
  int32_t block_len = 16;            // B
  int64_t kv_bytes = 0;              // at least of the longest sequence that is read
  int32_t step_tokens = 256;         // T of its largest pass
  int32_t max_texts = 8;             // at a time; others have no drafts of it
  int32_t vocab_size = 0;            // V of the target; its own rows may be padded to more or fewer
  int32_t n_sink = 0, n_window = 0;  // n_window 0: a sequence is read whole
  bool prefix_cache = true;
  std::vector<TokenId> end_of_generation;  // which are not drafted
  bool always = false;                     // drafts as many as it may, whatever they cost
};

class DraftModel final : public Proposer {
 public:
  // The tokens that are read of a sequence at most, drafts among them.
  static int32_t longest_read(const DraftModelOptions& options, int32_t context_len);
  // Refuses a window that a context of so many tokens cannot hold.
  static Status check(const DraftModelOptions& options, int32_t context_len);
  // The same, then makes one. `stream` and `clock` outlive it.
  static Result<std::unique_ptr<DraftModel>> create(std::unique_ptr<ForwardPass> model, Stream& stream,
                                                    const DraftModelOptions& options,
                                                    const Clock& clock = steady_clock());
  ~DraftModel() override;

  // Runs six short passes, so that their price is known before anybody asks. No sequence may be held.
  void measure();

  void begin_step(const StepPrices& prices) override;
  bool take_next() override { return worker_->take_next(); }
  // Without steps in which sequences that are far behind are read: whether that is worth it is weighed apart.
  double spent() const override { return reads_pieces_ ? 0 : drafting_.spent(); }
  void propose(const ProposalInput& input, Drafts& drafts) override;
  void propose_all(std::span<const Proposal> proposals) override;
  void forget(int64_t sequence) override;
  void self_check(const HeldText& text) const override;

  // For tests.
  int64_t n_computed_tokens() const { return n_computed_tokens_; }
  int64_t n_passes() const { return n_passes_; }
  const BlockCache& cache() const { return cache_; }

 private:
  struct Text : DraftText {
    int32_t n_left_out = 0;  // tokens after the sink that are not read; what follows counts the others
    int32_t n_computed = 0;  // of tokens, whose keys and values lie in the cache; fewer than tokens
    BlockTable blocks;
    std::vector<TokenId> written;  // whose keys and values lie in its slots, for self_check()
    int32_t n_published = 0;
    ScopeId scope = ScopeId::kNone;
  };
  using Lane = DraftLane;  // of a Sequence

  DraftModel(std::unique_ptr<Worker> worker, const DraftModelOptions& options, const Clock& clock, int32_t n_blocks);
  Text* text_of(const ProposalInput& input);
  void drop(Text& text);
  void drop_all();
  void follow(Text& text, const ProposalInput& input);
  void cut(Text& text);
  void list_lanes(std::span<const Proposal> proposals);
  bool is_worth_reading(const Lane& lane) const;
  void share_first_pass();
  int32_t reserve();
  std::span<const float> compute();
  bool pass();
  void build();
  TokenId token_at(const Text& text, int32_t i) const {  // the i-th of those that are read
    return text.tokens[static_cast<size_t>(i < options_.n_sink ? i : i + text.n_left_out)];
  }
  static Text& text_of(const Lane& lane) { return static_cast<Text&>(*lane.text); }
  static int32_t n_missing(const Text& text) { return text.n_text - text.n_left_out - text.n_computed; }

  std::unique_ptr<Worker> worker_;
  DraftModelOptions options_;
  const Clock& clock_;
  BlockCache cache_;
  std::vector<Text> texts_;
  std::vector<Lane> lanes_;
  Drafting drafting_;
  bool reads_pieces_ = false;  // in this step
  std::vector<BlockCopy> copies_;
  BatchArrays arrays_;
  int64_t n_computed_tokens_ = 0, n_passes_ = 0;
};

}  // namespace ibid
