#include "engine/policy.h"

#include <string>

#include "engine/sequence.h"

namespace ibid {
namespace {

class FirstCome final : public Policy {
 public:
  using Policy::Policy;
  OrderKey key_of(const Sequence& s) override { return {.id = s.id}; }
};

class ByPriority final : public Policy {
 public:
  using Policy::Policy;
  // ~ and not -, which the lowest integer has not.
  OrderKey key_of(const Sequence& s) override { return {.rank = ~s.request->priority, .id = s.id}; }
};

}  // namespace

StepBudget Policy::budget(std::span<Sequence* const>) { return most_; }

// The last in order: it has the least to lose, and those before it go on.
Sequence* Policy::victim(std::span<Sequence* const> running, const Sequence& asker) {
  for (size_t i = running.size(); i-- > 0 && running[i] != &asker;) {
    if (running[i]->may_be_preempted()) return running[i];
  }
  return nullptr;
}

std::string_view name_of(PolicyKind kind) { return kind == PolicyKind::kPriority ? "priority" : "fcfs"; }

Result<PolicyKind> policy_by_name(std::string_view name) {
  for (const PolicyKind kind : {PolicyKind::kPriority, PolicyKind::kFirstCome}) {
    if (name == name_of(kind)) return kind;
  }
  return invalid("The policy " + std::string(name) + " is not known; priority or fcfs would do.", "policy");
}

std::unique_ptr<Policy> make_policy(PolicyKind kind, const StepBudget& most) {
  if (kind == PolicyKind::kFirstCome) return std::make_unique<FirstCome>(most);
  return std::make_unique<ByPriority>(most);
}

}  // namespace ibid
