// Policy: all that is opinion in scheduling. Who comes before whom, how much a step may do, who gives up its blocks.
// The scheduler (scheduler.h) and the room (room.h) are mechanism and ask here. Pure host code on the engine's thread;
// it may know a sequence and its request, but no clock of its own.
#pragma once

#include <compare>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "base/ids.h"
#include "base/result.h"

namespace ibid {

struct Sequence;

// Where a sequence stands in the queue and among those that run: smaller goes first. A total order. Frozen when the
// sequence is first queued, so that it is found where it was put.
struct OrderKey {
  int32_t rank = 0;
  double tag = 0;
  SeqId id = SeqId::kNone;
  auto operator<=>(const OrderKey&) const = default;
};

struct StepBudget {
  int32_t n_tokens = 0;  // T of a step; at least as many as may run at once, so that every decode has a share
  int32_t n_rows = 0;    // R of a step; the same
};

class Policy {
 public:
  explicit Policy(const StepBudget& most) : most_(most) {}
  virtual ~Policy() = default;

  virtual OrderKey key_of(const Sequence& sequence) = 0;
  // Of the next step; `running` in order.
  virtual StepBudget budget(std::span<Sequence* const> running);
  // Who of `running` (in order) makes room for `asker`, itself one of them; null: nobody. One that may not be preempted
  // (Sequence::may_be_preempted) is no answer.
  virtual Sequence* victim(std::span<Sequence* const> running, const Sequence& asker);

 private:
  StepBudget most_;
};

enum class PolicyKind : uint8_t {
  kPriority,   // higher priority first, then who came first
  kFirstCome,  // who came first, whatever its priority
};
Result<PolicyKind> policy_by_name(std::string_view name);  // "priority", "fcfs"
std::string_view name_of(PolicyKind kind);

// `most`: what any step may do.
std::unique_ptr<Policy> make_policy(PolicyKind kind, const StepBudget& most);

}  // namespace ibid
