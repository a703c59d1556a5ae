// QueueForecast: when a request that came now would have its first token. Goes through the steps to come as the
// scheduler would plan them (scheduler.h: decodes first, prompts within the policy's budget, the shortest first and a
// quarter for the oldest), over plain numbers and the prices of step_cost.h; equal steps are taken together. No source
// beyond these: it is a replay of our own rules.
//
// What it does not know it leaves out: requests that come later, tenants (all are taken as one), drafts, targets of
// requests, and where an answer ends, which it takes to be as long as those before it. The engine's thread.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/state/policy.h"

namespace ibid {

struct Sequence;

// What requests were like lately: means in which the last sixteen or so count.
struct TypicalRequest {
  double prompt_tokens = 256;  // to compute; cached ones are not counted
  double answer_tokens = 256;
  void saw_prompt(int32_t n_tokens) { prompt_tokens += (n_tokens - prompt_tokens) / 16; }
  void saw_answer(int32_t n_tokens) { answer_tokens += (n_tokens - answer_tokens) / 16; }
};

struct ForecastOptions {
  int32_t max_sequences = 0;  // running at once
  int32_t block_len = 0;
  int32_t n_free_blocks = 0;     // that no sequence refers to
  SeqId refused = SeqId::kNone;  // who found no blocks last, in steps so far
  bool has_ranks = true;         // of priorities
  bool reads_whole = false;      // an encoder: no time bounds its prompts
};

class QueueForecast {
 public:
  // Both outlive it.
  QueueForecast(const Policy& policy, const StepCost& cost, const ForecastOptions& options)
      : policy_(policy), cost_(cost), options_(options), refused_(options.refused) {}

  // One that has not ended. The members that hold no place of their own (held choices, parked beams) count for nothing.
  // Throws std::bad_alloc.
  void add(const Sequence& sequence, const TypicalRequest& typical);
  // Tokens that steps must compute before the next tokens of what was added: of prompts, and of answers that lost their
  // blocks. Those known to be cached are not among them.
  int64_t queue_tokens() const { return queue_tokens_; }
  // Seconds until the end of the step that gives the first token to a request of priority 0 with n_prompt tokens to
  // compute. 0 while nothing is known of steps. Takes 0.1 ms, and some 4 ms where thousands wait: the rest of
  // a queue that would take longer is thought to go as what was gone through. Call it once. Throws std::bad_alloc.
  double first_token_seconds(int32_t n_prompt);

 private:
  struct Prompt {
    OrderKey key;
    int32_t n_before = 0, n_left = 0;  // tokens computed or cached, and to compute
    int32_t n_answer = 0;              // tokens of each of the sequences that it becomes
    int32_t n_sequences = 1;
    bool waits = false;  // for a place and its blocks
    bool is_asked = false;
  };
  struct Decode {
    OrderKey key;
    int64_t last_step = 0;  // of its answer
    int64_t n_tokens = 0;   // at its end
  };
  struct Granted {
    size_t prompt = 0;
    int32_t n_tokens = 0;
  };
  int64_t whole_blocks(int64_t n_tokens) const;
  void list_candidates();
  size_t take_next();
  StepLoad decodes(int64_t n_more = 0) const;
  StepBudget without_part_of(const Prompt& oldest, const StepLoad& load) const;
  void grant();
  int32_t n_within(const StepBudget& limit, const StepLoad& load, const Prompt& prompt) const;
  const Prompt* first_waiting() const;
  int64_t needs(const Prompt& prompt) const;
  bool admit(Prompt& prompt);
  int64_t n_equal_steps() const;
  StepLoad load_of(int64_t n_steps) const;
  bool pass(int64_t n_steps);
  void begin_answer(const Prompt& prompt);
  void preempt_last();
  void end_answers();

  const Policy& policy_;
  const StepCost& cost_;
  const ForecastOptions options_;
  int64_t queue_tokens_ = 0;
  std::vector<Prompt> prompts_;  // in the order of their keys once it runs
  std::vector<Decode> decodes_;  // a heap, who ends first in front
  int64_t decode_tokens_ = 0;    // that decodes have, added up
  int32_t n_running_prompts_ = 0;
  int64_t n_places_ = 0, n_free_ = 0;  // n_free_: positions of free blocks
  SeqId refused_;                      // who found no blocks last
  int64_t step_ = 0, n_looks_ = 0, n_granted_ = 0;
  // Of the step that is gone through:
  StepBudget budget_;
  std::vector<size_t> candidates_;  // a heap, whose turn it is in front
  std::vector<Granted> granted_;
  bool has_admitted_ = false, has_looked_ = false;
};

}  // namespace ibid
