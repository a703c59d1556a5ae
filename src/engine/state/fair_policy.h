// FairPolicy: the machine is shared between tenants by their weights (Request::weight), whatever each of them asks for.
//
// Start-time fair queueing (Goyal, Vin, Cheng, SIGCOMM 1996) with a tenant as a flow and a share of a step as a packet,
// as in the virtual token counter (Sheng et al., Fairness in Serving Large Language Models, OSDI 2024): each tenant has
// a tag, the tokens that it was served over its weight, a prompt's token counted at its cost beside a decoded one. Of
// those who wait for something the tenant with the smallest tag goes first. The system's virtual time is that tenant's
// tag; a tenant that asks for less than its share never falls behind, so none saves up service, and one that comes
// again begins there.
//
// Within a tenant: higher priority, then as prompts share (policy.h). With one tenant this is ByPriority.
//
// Decodes: a step's time is shared too. Alone, a tenant's decodes would take a step of some seconds; beside others they
// may take that over its part of the weights, and so each tenant's sequences advance at least at its part of the speed
// that they would have alone. Where the next tokens of all take longer, the tenant with the shortest bound has all of
// its own, and the others fill what the bound leaves: the tenant with the smallest tag first, of each its sequences in
// turn. The rest sits the step out. A tenant whose tag is a token after the first one's has that one in any case, so
// that a small weight is a small part and not none. Prompts and drafts keep within the same bound.
//
// Places: where all are taken, a tenant with fewer than its part of them, whose turn it is, gets one of a tenant with
// more than its own. Blocks: the tenant that holds the most for its weight gives way first, the last in its order.
#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "engine/state/policy.h"

namespace ibid {

// One tenant, as long as it has sequences, and some time after.
struct Flow {
  double tag = 0;  // served tokens / weight
  double weight = 1;
  int32_t n_sequences = 0;  // queued or running
  int32_t n_in_window = 0;  // scratch of FairPolicy
  int64_t n_held = 0;       // the same
  bool is_backlogged = false;
  // Of FairPolicy::choose_decodes():
  StepLoad decodes;           // the next tokens of all its running sequences
  double alone = 0;           // seconds of a step of these and its prompts
  bool sits_out = false;      // one of them at least
  double next_tag = 0;        // with what it has in the step that is chosen
  size_t begin = 0, end = 0;  // of waiting_, those that have no token yet
  OrderKey last;              // who had the last token that its sequences took in turn
};

class FairPolicy final : public Policy {
 public:
  FairPolicy(const PolicyOptions& options, const StepCost& cost);
  OrderKey key_of(const Sequence& sequence) override;
  double choose_decodes(std::span<Sequence* const> running) override;
  Sequence* victim(std::span<Sequence* const> running, const Sequence& asker) override;
  double turn_of(const Sequence& sequence) const override;
  void window(const WaitingQueue& queue, size_t n_places, std::vector<Sequence*>& out) override;
  Sequence* gives_place(std::span<Sequence* const> running, const Sequence& asker) override;
  void meet(const Request& request) override;
  void queued(Sequence& sequence) override;
  void granted(const Sequence& sequence, int32_t n_tokens) override;
  void gone(Sequence& sequence) override;

 private:
  void advance();
  Flow* most_pressed(std::span<Sequence* const> running, double& limit);
  double kept_for_prompts(double limit) const;
  void fill(const Flow& first, StepLoad load, double limit);

  std::unordered_map<std::string, Flow> flows_;
  double weights_ = 0;              // of all that have sequences
  std::vector<Sequence*> waiting_;  // scratch of choose_decodes: decodes that may sit out, each flow's together
  std::vector<Flow*> turns_;        // the same: flows with some of these, a heap by tag
  double now_ = 0;                  // the system's virtual time
};

}  // namespace ibid
