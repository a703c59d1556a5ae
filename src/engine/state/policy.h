// Policy: all that is opinion in scheduling. Who comes before whom, how much a step may do, who gives up its place or
// its blocks. The scheduler (scheduler.h) and the room (room.h) are mechanism and ask here. Pure host code on the
// engine's thread; it may know a sequence and its request, and time only through the cost of steps (step_cost.h).
#pragma once

#include <compare>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "engine/state/step_cost.h"

namespace ibid {

struct Request;
struct Sequence;
class WaitingQueue;

// Where a sequence stands in the queue and among those that run: smaller goes first. A total order. Frozen when the
// sequence is first queued, so that it is found where it was put.
struct OrderKey {
  int32_t rank = 0;
  SeqId id = SeqId::kNone;
  auto operator<=>(const OrderKey&) const = default;
};

struct StepBudget {
  int32_t n_tokens = 0;  // T of a step; at least as many as may run at once, so that every decode has a share
  int32_t n_rows = 0;    // R of a step; the same
  // What the step may take by its cost, prompts included. A step with decodes has kLeastPromptTokens of prompts,
  // should it take longer.
  double seconds = std::numeric_limits<double>::infinity();
  // The same for drafts, in a step without prompts; in one with prompts they keep within `seconds`.
  double seconds_with_drafts = std::numeric_limits<double>::infinity();
};
inline constexpr int32_t kLeastPromptTokens = 4;
// Share of a step's time for prompts, whatever the bound is: they are not starved where many sequences decode.
inline constexpr double kLeastPromptShare = 0.2;

struct PolicyOptions {
  StepBudget most;  // of any step
  // Seconds that a step with decodes may take because of prompts; 0: by the model's own speed (policy.cc).
  // Decodes that take longer by themselves do.
  double max_itl = 0;
  int32_t max_sequences = 0;  // running at once
};

class Policy {
 public:
  static constexpr double kNoLimit = std::numeric_limits<double>::infinity();

  // `cost` outlives the policy.
  Policy(const PolicyOptions& options, const StepCost& cost) : options_(options), cost_(cost) {}
  virtual ~Policy() = default;

  virtual OrderKey key_of(const Sequence& sequence) = 0;
  // Of the next step, in which `decodes` have their next token, the most urgent of them within `tpot` seconds.
  virtual StepBudget budget(const StepLoad& decodes, double tpot) const;
  // Whether so many decodes keep within it, with what prompts have at least.
  bool may_decode(const StepLoad& decodes, double tpot) const;
  // Which of `running` (in order) makes room for `asker`, itself one of them; null: none. One that may not be preempted
  // (Sequence::may_be_preempted) must not be returned.
  virtual Sequence* victim(std::span<Sequence* const> running, const Sequence& asker);

  // ---- Decodes ----
  // Before a step is planned: which of `running` (in order), of those with a next token to compute, sit this step out
  // (Sequence::sits_out, false for all before the call). At least one does not. Returns the seconds that the step may
  // take, prompts and drafts included; infinity: as budget() returns.
  virtual double choose_decodes(std::span<Sequence* const> /*running*/) { return kNoLimit; }

  // ---- Prompts ----
  // Smaller goes first, before rank and age; may change from step to step, and with what is granted. The same for all
  // sequences of one flow (Sequence::flow).
  virtual double turn_of(const Sequence&) const { return 0; }
  // Whether of those whose turn it is the one with the least to compute goes first, and not the oldest. The oldest then
  // has a quarter of what a step does for prompts.
  virtual bool shortest_first() const { return true; }
  // Those of the queue that may be admitted next, where n places are free: appended to `out`, in order of their keys.
  virtual void window(const WaitingQueue& queue, size_t n_places, std::vector<Sequence*>& out);
  // All places are taken, and `asker` waits: which of `running` gives its own up; null: none.
  virtual Sequence* gives_place(std::span<Sequence* const>, const Sequence&) { return nullptr; }

  // ---- Events ----
  // A request arrives; before its first sequence is queued. Only this may throw, for want of memory.
  virtual void meet(const Request&) {}
  virtual void queued(Sequence&) {}
  virtual void granted(const Sequence&, int32_t /*n_tokens*/) {}
  virtual void gone(Sequence&) {}

 protected:
  const StepCost& cost() const { return cost_; }
  const PolicyOptions& options() const { return options_; }

 private:
  PolicyOptions options_;
  const StepCost& cost_;
};

enum class PolicyKind : uint8_t {
  kFair,       // tenants by weight; of each, higher priority first, then who came first
  kPriority,   // higher priority first, then who came first
  kFirstCome,  // who came first, whatever its priority or length
};
Result<PolicyKind> policy_by_name(std::string_view name);  // "fair", "priority", "fcfs"
std::string_view name_of(PolicyKind kind);

std::unique_ptr<Policy> make_policy(PolicyKind kind, const PolicyOptions& options, const StepCost& cost);

}  // namespace ibid
