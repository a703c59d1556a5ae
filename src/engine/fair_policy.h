// FairPolicy: the machine is shared between tenants by their weights (Request::weight), whatever each of them asks for.
//
// Start-time fair queueing (Goyal, Vin, Cheng, SIGCOMM 1996) with a tenant as a flow and a share of a step as a packet,
// as in the virtual token counter (Sheng et al., Fairness in Serving Large Language Models, OSDI 2024): each tenant has
// a tag, the tokens that it was served over its weight, a prompt's token counted at its cost beside a decoded one. Of
// those who wait for something the tenant with the smallest tag goes first. The system's virtual time is that tenant's
// tag; who asks for less than its share is never behind it, so nobody saves up service, and a tenant that comes anew
// begins there.
//
// Within a tenant: higher priority, then as prompts share (policy.h). With one tenant this is ByPriority.
//
// Places: where all are taken, a tenant with fewer than its part of them, whose turn it is, gets one of a tenant with
// more than its own. Blocks: the tenant that holds the most for its weight gives way first, the last in its order.
#pragma once

#include <string>
#include <unordered_map>

#include "engine/policy.h"

namespace ibid {

// One tenant, as long as it has sequences, and some time after.
struct Flow {
  double tag = 0;  // served tokens / weight
  double weight = 1;
  int32_t n_sequences = 0;  // queued or running
  int32_t n_in_window = 0;  // scratch of FairPolicy
  int64_t n_held = 0;       // the same
  bool is_backlogged = false;
};

class FairPolicy final : public Policy {
 public:
  using Policy::Policy;
  OrderKey key_of(const Sequence& sequence) override;
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

  std::unordered_map<std::string, Flow> flows_;
  double now_ = 0;  // the system's virtual time
};

}  // namespace ibid
