#include "engine/state/fair_policy.h"

#include <algorithm>

#include "base/check.h"
#include "engine/state/sequence.h"
#include "engine/state/waiting_queue.h"

namespace ibid {
namespace {

// Of a queue that is longer, those further back are not seen until others have left it.
constexpr int kMaxSeen = 4096;
// A step may take so many times its bound before anybody sits out: predictions are no better, and a step of all is the
// one that wastes least.
constexpr double kSlack = 1.1;

bool decodes(const Sequence& s) { return s.n_missing() == 1; }

// What a tenant would have of n places beside all who have sequences.
double part_of(const Flow& flow, double all_weights, size_t n) {
  return static_cast<double>(n) * flow.weight / all_weights;
}

}  // namespace

FairPolicy::FairPolicy(const PolicyOptions& options, const StepCost& cost) : Policy(options, cost) {
  waiting_.reserve(static_cast<size_t>(options.max_sequences));
  turns_.reserve(static_cast<size_t>(options.max_sequences));
}

OrderKey FairPolicy::key_of(const Sequence& s) { return {.rank = ~s.request->priority, .id = s.id}; }

double FairPolicy::turn_of(const Sequence& s) const { return s.account.flow->tag; }

void FairPolicy::meet(const Request& request) { flows_.try_emplace(request.tenant); }

void FairPolicy::queued(Sequence& s) {
  const auto it = flows_.find(s.request->tenant);
  CHECK(it != flows_.end(), "a sequence of an unknown tenant");
  Flow& flow = it->second;
  flow.weight = static_cast<double>(s.request->weight);
  if (flow.n_sequences++ == 0) flow.tag = std::max(flow.tag, now_);
  s.account.flow = &flow;
}

void FairPolicy::gone(Sequence& s) {
  if (s.account.flow == nullptr) return;
  --s.account.flow->n_sequences;
  s.account.flow = nullptr;
}

double FairPolicy::choose_decodes(std::span<Sequence* const> running) {
  for (auto& [tenant, flow] : flows_) flow.sits_out = false;
  if (flows_.size() < 2 || !cost().is_known()) return kNoLimit;
  double limit = kNoLimit;
  const Flow* first = most_pressed(running, limit);
  if (first == nullptr) return kNoLimit;
  StepLoad all;
  for (const auto& [tenant, flow] : flows_) all.add(flow.decodes);
  const double for_decodes = limit - kept_for_prompts(limit);
  if (cost().seconds(all) <= kSlack * for_decodes) return limit;
  waiting_.clear();
  for (Sequence* s : running) {
    if (!decodes(*s) || s->account.flow == first) continue;
    s->account.sits_out = s->account.flow->sits_out = true;
    waiting_.push_back(s);
  }
  fill(*first, first->decodes, for_decodes);
  return limit;
}

// The tenant that a step of all slows most, and how long the step may take for it. Null: no two tenants share steps.
Flow* FairPolicy::most_pressed(std::span<Sequence* const> running, double& limit) {
  int n_flows = 0;
  weights_ = 0;
  for (auto& [tenant, flow] : flows_) {
    flow.decodes = {};
    if (flow.n_sequences > 0) weights_ += flow.weight, ++n_flows;
  }
  if (n_flows < 2) return nullptr;
  const bool has_places = static_cast<int32_t>(running.size()) < options().max_sequences;
  for (auto& [tenant, flow] : flows_) flow.n_held = has_places ? flow.n_sequences : 0;  // that may have prompts
  for (const Sequence* s : running) {
    if (decodes(*s)) s->account.flow->decodes.add_decode(s->n_computed());
    s->account.flow->n_held += (has_places ? 0 : 1) - (decodes(*s) ? 1 : 0);
  }
  Flow* first = nullptr;
  for (auto& [tenant, flow] : flows_) {
    if (flow.decodes.empty()) continue;
    flow.alone = flow.n_held > 0 ? budget(flow.decodes, kNoLimit).seconds : cost().seconds(flow.decodes);
    const double bound = flow.alone * weights_ / flow.weight;
    if (bound < limit) limit = bound, first = &flow;
  }
  return first;
}

// Each tenant's part of the bound that its prompts would have of a step alone.
double FairPolicy::kept_for_prompts(double limit) const {
  double kept = 0;
  for (const auto& [tenant, flow] : flows_) {
    if (flow.n_held <= 0) continue;
    const double of_its_own = flow.decodes.empty() ? 1 : 1 - cost().seconds(flow.decodes) / flow.alone;
    kept += limit * flow.weight / weights_ * std::max(0.0, of_its_own);
  }
  return kept;
}

// Has those of waiting_ not sit out whom the bound leaves time for.
void FairPolicy::fill(const Flow& first, StepLoad load, double limit) {
  // Each tenant's stand together, who had its turn last at the end.
  std::ranges::sort(waiting_, [](const Sequence* a, const Sequence* b) {
    if (a->account.flow != b->account.flow) return a->account.flow < b->account.flow;
    const bool a_had = a->account.key <= a->account.flow->last, b_had = b->account.key <= b->account.flow->last;
    return a_had != b_had ? b_had : a->account.key < b->account.key;
  });
  turns_.clear();
  for (size_t i = 0; i < waiting_.size(); ++i) {
    Flow* flow = waiting_[i]->account.flow;
    if (i == 0 || waiting_[i - 1]->account.flow != flow) {
      flow->begin = i;
      turns_.push_back(flow);
    }
    flow->end = i + 1;
  }
  // The tag that a flow will have with the tokens it has in this step, and before it in order of equal ones.
  std::ranges::sort(turns_, {}, [this](const Flow* flow) { return waiting_[flow->begin]->account.key; });
  const auto later = [](const Flow* a, const Flow* b) { return a->next_tag > b->next_tag; };
  for (Flow* flow : turns_) flow->next_tag = flow->tag;
  std::ranges::make_heap(turns_, later);
  while (!turns_.empty()) {
    std::ranges::pop_heap(turns_, later);
    Flow& flow = *turns_.back();
    Sequence& s = *waiting_[flow.begin];
    StepLoad with = load;
    with.add_decode(s.n_computed());
    const bool is_after = flow.next_tag == flow.tag && flow.tag + 1 / flow.weight <= first.tag;
    if (!is_after && cost().seconds(with) > limit) {
      turns_.pop_back();
      continue;
    }
    load = with;
    s.account.sits_out = false;
    flow.last = s.account.key;
    flow.next_tag += 1 / flow.weight;
    if (++flow.begin == flow.end) {
      flow.sits_out = false;
      turns_.pop_back();
      continue;
    }
    std::ranges::push_heap(turns_, later);
  }
}

void FairPolicy::granted(const Sequence& s, int32_t n_tokens) {
  const double each = n_tokens > 1 ? cost().prompt_token() : 1;
  s.account.flow->tag += n_tokens * each / s.account.flow->weight;
}

void FairPolicy::window(const WaitingQueue& queue, size_t n_places, std::vector<Sequence*>& out) {
  for (auto& [tenant, flow] : flows_) flow.n_in_window = 0, flow.is_backlogged = flow.sits_out;
  for (const Sequence* s : out) s->account.flow->is_backlogged = true;
  int n_seen = 0;
  const auto most = static_cast<int32_t>(std::max<size_t>(n_places, 1));  // one, for whom a place may be given up
  queue.each([&](Sequence* s) {
    s->account.flow->is_backlogged = true;
    if (s->account.flow->n_in_window < most && out.size() < out.capacity()) {
      ++s->account.flow->n_in_window;
      out.push_back(s);
    }
    return ++n_seen < kMaxSeen;
  });
  advance();
}

// Virtual time is the tag of the tenant that goes next; if none waits for anything, all have had their demand.
void FairPolicy::advance() {
  double least = std::numeric_limits<double>::infinity(), most = now_;
  for (const auto& [tenant, flow] : flows_) {
    if (flow.is_backlogged) least = std::min(least, flow.tag);
    most = std::max(most, flow.tag);
  }
  now_ = std::max(now_, std::min(least, most));
  for (auto it = flows_.begin(); it != flows_.end();) {
    Flow& flow = it->second;
    const bool is_idle = flow.n_sequences == 0;
    if (is_idle && flow.tag <= now_) {
      it = flows_.erase(it);  // as if it came again
      continue;
    }
    if (!is_idle) flow.tag = std::max(flow.tag, now_);
    ++it;
  }
}

Sequence* FairPolicy::gives_place(std::span<Sequence* const> running, const Sequence& asker) {
  double weights = 0;
  for (auto& [tenant, flow] : flows_) {
    flow.n_held = 0;
    if (flow.n_sequences > 0) weights += flow.weight;
  }
  for (const Sequence* s : running) ++s->account.flow->n_held;
  const auto excess = [&](const Flow& flow) {
    return (static_cast<double>(flow.n_held) - part_of(flow, weights, running.size())) / flow.weight;
  };
  const Flow& own = *asker.account.flow;
  if (static_cast<double>(own.n_held + 1) > part_of(own, weights, running.size())) return nullptr;
  Sequence* best = nullptr;
  for (Sequence* s : running) {
    if (s->account.flow == &own || s->account.flow->tag < own.tag || excess(*s->account.flow) <= 0 ||
        !s->may_be_preempted())
      continue;
    if (best == nullptr || excess(*s->account.flow) >= excess(*best->account.flow)) best = s;
  }
  return best;
}

Sequence* FairPolicy::victim(std::span<Sequence* const> running, const Sequence& asker) {
  for (auto& [tenant, flow] : flows_) flow.n_held = 0;
  for (const Sequence* s : running) s->account.flow->n_held += static_cast<int64_t>(s->place.blocks().size());
  const auto load = [](const Sequence& s) {
    return static_cast<double>(s.account.flow->n_held) / s.account.flow->weight;
  };
  Sequence* best = nullptr;
  for (Sequence* s : running) {
    const bool gives_way =
        s->account.flow == asker.account.flow ? asker.account.key < s->account.key : load(*s) > load(asker);
    if (!gives_way || !s->may_be_preempted()) continue;
    if (best == nullptr || load(*s) >= load(*best)) best = s;
  }
  return best;
}

}  // namespace ibid
