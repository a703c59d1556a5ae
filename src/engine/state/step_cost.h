// StepCost: how long a step will take, learned from how long steps took. Host code of the engine's thread, without a
// clock of its own: the seconds are those that the engine reads anyway.
//
// A step's time is a sum of what it has to do (StepLoad), each part times a cost that is not negative: the step itself
// (weights are read once), prompt tokens, decoded tokens, positions that their attention reads, and drafts' apart,
// rows of logits, memory that is written for the first time; of a mixture of experts the experts whose weights are
// read, and of a model with recurrent state the states. Costs are fitted by least squares of relative errors,
// forgetting older steps, each kind of step (prompts alone, decodes alone, both) for itself: a night of decodes does
// not make it forget what a prompt costs. A step that took far longer than it should have (a stalled machine) weighs by
// inverse square of its time, that is next to nothing. Until observed steps distinguish the parts, an estimate of their
// proportions stands in, scaled to what was seen. What all parts share at the moment, a machine that others use too, is
// one factor: the median of the last few steps' times over their predictions.
//
// Method: normal equations with exponential forgetting (Ljung, System Identification, 11.2) and ridge towards the
// estimate, solved under c >= 0 by cyclic coordinate descent from the last solution (Franc, Hlavac, Navara, Sequential
// coordinate-wise algorithm for the non-negative least squares problem, 2005).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "engine/state/step_load.h"

namespace ibid {

// What of a model decides which parts its steps have.
struct CostTerms {
  int32_t n_experts = 0;  // of a layer, by whose router n_experts_used each token is sent; 0: it is dense
  int32_t n_experts_used = 0;
  bool has_state = false;  // each sequence of a step reads and writes a recurrent state
  double kv_bytes = 1;     // what attention reads of a position, in those of a cache of F16
};
// How many experts of a layer n_tokens touch, were routers to choose without preference: E (1 - (1 - k/E)^T). A bound
// from above, as routers have preferences; what is left is in the cost that is learned.
double distinct_experts(const CostTerms& terms, int64_t n_tokens);

class StepCost {
 public:
  explicit StepCost(const CostTerms& terms = {});

  // False until a step has been seen: then nothing is predicted.
  bool is_known() const { return n_seen_ > 0; }
  double seconds(const StepLoad& load) const;
  // What drafts make a step longer by. Rows of one sequence share what they read, and a step without drafts teaches
  // nothing: so what they read costs at most a part of what the sequence's own token reads, until observed.
  double of_drafts(const StepLoad& without, const StepLoad& with) const;
  // How many of n_tokens of a prompt, after n_before others, can join `load` without its time passing `limit` seconds.
  // All but the first n_rowless of them give rows of logits; is_new: their blocks are new memory.
  int32_t n_within(double limit, const StepLoad& load, int32_t n_before, int32_t n_tokens, int32_t n_rowless,
                   bool is_new = false) const;
  // What a prompt's token costs, in decoded tokens; within [1/8, 8].
  double prompt_token() const;

  // A step of this load took so long. Nothing where no time passed (a clock that stands still).
  void observe(const StepLoad& load, double seconds);

  // |predicted - taken| / taken of the last steps, the first few of a process left out: quantiles, 0 at first.
  double error_p50() const { return error_p50_; }
  double error_p95() const { return error_p95_; }

 private:
  static constexpr size_t kParts = 10;
  static constexpr size_t kKinds = 3;
  static constexpr size_t kWindow = 512;
  using Parts = std::array<double, kParts>;
  struct Seen {  // the normal equations of one kind of step
    std::array<Parts, kParts> products = {};
    Parts values = {};
  };
  Parts parts_of(const StepLoad& load) const;
  static size_t kind_of(const StepLoad& load);
  double without_factor(const Parts& parts) const;
  void fit();
  void note_error(double error);

  CostTerms terms_;
  Parts estimate_ = {};  // of the costs, beside a prompt token's
  std::array<Seen, kKinds> seen_ = {};
  Parts costs_ = {};  // seconds
  bool knows_draft_reads_ = false;
  double factor_ = 1;
  std::array<double, 3> last_factors_ = {1, 1, 1};
  int64_t n_seen_ = 0;
  std::array<float, kWindow> errors_ = {};
  int64_t n_errors_ = 0;
  double error_p50_ = 0, error_p95_ = 0;
};

}  // namespace ibid
