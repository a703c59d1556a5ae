// Runner: carries a plan out. Copies blocks, builds the batch, runs the model, draws tokens and verifies drafts.
// Decides nothing and changes no sequence.
//
// Verification is drawing: the token after the sequence is drawn from the target's own row with the request's own
// noise; if it is a draft, the row after that draft is the sequence's next row, and so on ("coupled" verification,
// docs/design.md section 5, law 4). So drafts change no byte, whatever the sampler; and the rows of one sequence are
// drawn one after the other, each with the history and the sampler's state that the one before leaves. Other verifiers
// (spec/verifier.h) walk the same way, the drafts after the sequence tried one after the other at each row.
#pragma once

#include <optional>
#include <vector>

#include "base/clock.h"
#include "engine/state/search_group.h"
#include "engine/state/step_plan.h"
#include "engine/step/batch_builder.h"
#include "sample/sampler.h"
#include "spec/experimental/typical.h"
#include "spec/proposer.h"
#include "text/output/finish_reason.h"
#include "worker/worker.h"

namespace ibid {

// The first token of a further choice, drawn from the row after the prompt that the first choice computed.
struct FirstDraw {
  Sequence* sequence = nullptr;
  TokenRecord drawn;  // unless `failure` is set
  std::optional<Error> failure;
  SamplerState state;                               // after the draw
  FinishReason recorded_end = FinishReason::kNone;  // ShareResult's
};

struct alignas(64) ShareResult {       // what few have stands first
  std::vector<FirstDraw> first_draws;  // in the step that ends the prompt: of Sequence::followers, in their order
  SearchRow row;                       // of a beam: what may follow it, instead of what is drawn
  std::optional<Error> failure;        // of the draw after those that were drawn
  std::vector<TokenRecord> scored;     // the prompt's next tokens, one for each row of RowPurpose::kScore
  std::vector<TokenRecord> drawn;      // the tokens after the sequence: all but the last are drafts that were right
  std::vector<int32_t> accepted;       // those drafts, by their index; their keys and values lie at their positions
  std::vector<RefusedDraft> refused;   // after those, where anybody reads them (Proposer::refused)
  SamplerState state;                  // after the draws
  std::span<const float> hidden;       // of its tokens, [n, C], if they are needed; valid until the next step.
                                       // Of a rank its scores, [n_labels]
  int32_t first = 0, first_row = 0;    // its first token's position, and row among the step's tokens
  std::span<const float> drawn_after;  // [C], of the row that its last token was drawn from, if it is needed
  bool out_of_memory = false;          // the above is not whole
  bool is_unsound = false;             // nor here: the model computed no numbers (unsound_row())
  // Of a replay whose draws are given (RecordedDraws): the answer ends after what was drawn; how its search goes on
  // where its row was the last of its turn, valid until the next step.
  FinishReason recorded_end = FinishReason::kNone;
  bool is_recorded = false;
  const SearchTurn* recorded_turn = nullptr;
};

// What steps draw, given by a record instead of drawn from rows of logits. `share` is an index into the plan. next()
// may be called for several shares at once.
class RecordedDraws {
 public:
  virtual ~RecordedDraws() = default;
  // Whether it gives the draws of this sequence; if not, they are drawn, and nothing below is called.
  virtual bool has(const Sequence& sequence) const = 0;
  virtual Result<TokenRecord> next(const StepPlan& plan, size_t share) = 0;
  // The first token of this further choice, whose first one ends the prompt in the step; sets `end` where its answer
  // ends after it. May be called for several at once.
  virtual Result<TokenRecord> first(const Sequence& sequence, FinishReason& end) = 0;
  // Whatever else became of it.
  virtual void mark(const StepPlan& plan, size_t share, ShareResult& result) = 0;
};

struct StepResult {
  std::vector<ShareResult> shares;  // as in the plan
  int32_t n_first_draws = 0;        // of all shares
  double forward_seconds = 0;
  double sample_seconds = 0;
};

// What a step computes beside what its plan needs (ProposerExtras).
struct StepWants {
  bool rows_hidden = false;  // ShareResult::drawn_after
  bool refused = false;      // ShareResult::refused
  bool taps = false;         // Worker::set_taps(), in steps with sequences that may be read
};

// A step between its two halves.
struct StepTicket {
  Inflight step;
  StepWants wants;
  double begun = 0;  // on the clock
};

class Runner {
 public:
  // All outlive the runner. `team` draws: it is idle while it does.
  Runner(Worker& worker, ThreadTeam& team, const BatchLimits& limits, const Clock& clock);
  // The first half: builds the batch and hands it to the worker. On a device it returns while that computes. The plan
  // stays as it is until finish().
  StepTicket launch(const StepPlan& plan, const StepWants& wants = {});
  // The second half, of the step that was launched with this plan: waits for its rows, draws and verifies. Valid until
  // the next call.
  StepResult& finish(const StepPlan& plan, const StepTicket& ticket);
  // From now on tokens come from `draws` where it has them; it outlives the runner. Their rows are not read.
  void draw_from(RecordedDraws* draws) { recorded_ = draws; }

 private:
  // One row to score, or all rows of a share from the one that is drawn on, or the first draw of a further choice from
  // that row.
  struct Task {
    size_t row;
    size_t scored = 0;   // index into ShareResult::scored
    int32_t first = -1;  // index into ShareResult::first_draws
    bool out_of_memory = false;
    bool is_unsound = false;
  };
  struct Scratch {  // of one thread
    SamplerScratch sampler;
    std::vector<TokenId> answer;    // with drafts after it
    std::vector<uint32_t> mask;     // of a row; empty where all may come
    std::vector<float> processed;   // a row that a LogitsProcessor has changed
    std::vector<Sibling> siblings;  // that a verifier looks at
    std::vector<double> law;        // while it does
  };
  void list_tasks(const StepPlan& plan);
  bool list_draws(const StepPlan& plan, size_t row, ShareResult& result);
  void do_task(const StepPlan& plan, Task& task, Scratch& scratch);
  void score(const StepPlan& plan, Task& task, Scratch& scratch);
  void draw(const StepPlan& plan, const Task& task, Scratch& scratch);
  void draw_first(const StepPlan& plan, const Task& task, Scratch& scratch);
  Result<TokenRecord> draw_row(const Sequence& sequence, size_t row, const SampleHistory& history, SamplerState& state,
                               Scratch& scratch, DrawRule* rule) const;
  void read_refused(const Share& share, size_t first_row, int32_t parent, ShareResult& result, Scratch& scratch);
  void look(const StepPlan& plan, const Task& task, Scratch& scratch);
  void fill_mask(const Sequence& sequence, std::span<const TokenId> answer, uint32_t state,
                 std::vector<uint32_t>& mask) const;
  std::span<const float> logits(size_t row) const;
  bool is_recorded(const Sequence& sequence) const { return recorded_ != nullptr && recorded_->has(sequence); }
  void move_accepted(const StepPlan& plan);

  Worker& worker_;
  ThreadTeam& team_;
  const Clock& clock_;
  BatchBuilder builder_;
  std::span<const float> logits_;  // [R, V] of this step
  std::span<const float> hidden_;  // [T, C] of it, after the final norm; empty if not needed
  StepWants wants_;                // of this step
  HostRows rows_hidden_;           // [R, C] of it; empty: not wanted
  std::vector<Task> tasks_;
  std::vector<int32_t> from_, to_;     // slots of accepted drafts that move
  std::vector<Scratch> scratch_;       // one per thread
  RecordedDraws* recorded_ = nullptr;  // null: tokens are drawn
  StepResult result_;
};

}  // namespace ibid
