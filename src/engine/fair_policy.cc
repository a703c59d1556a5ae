#include "engine/fair_policy.h"

#include <algorithm>

#include "base/check.h"
#include "base/planted.h"
#include "engine/sequence.h"
#include "engine/waiting_queue.h"

namespace ibid {
namespace {

// Of a queue that is longer, those further back are not seen until others have left it.
constexpr int kMaxSeen = 4096;

// What a tenant would have of n places beside all who have sequences.
double part_of(const Flow& flow, double all_weights, size_t n) {
  return static_cast<double>(n) * flow.weight / all_weights;
}

}  // namespace

OrderKey FairPolicy::key_of(const Sequence& s) { return {.rank = ~s.request->priority, .id = s.id}; }

double FairPolicy::turn_of(const Sequence& s) const { return s.flow->tag; }

void FairPolicy::meet(const Request& request) { flows_.try_emplace(request.tenant); }

void FairPolicy::queued(Sequence& s) {
  const auto it = flows_.find(s.request->tenant);
  CHECK(it != flows_.end(), "a sequence of a tenant that nobody has met");
  Flow& flow = it->second;
  if (!PLANTED("weight_is_ignored")) flow.weight = static_cast<double>(s.request->weight);
  if (flow.n_sequences++ == 0 && !PLANTED("service_is_saved_up")) flow.tag = std::max(flow.tag, now_);
  s.flow = &flow;
}

void FairPolicy::gone(Sequence& s) {
  if (s.flow == nullptr) return;
  --s.flow->n_sequences;
  s.flow = nullptr;
}

void FairPolicy::granted(const Sequence& s, int32_t n_tokens) {
  const double each = n_tokens > 1 && !PLANTED("prompts_count_as_answers") ? cost().prompt_token() : 1;
  s.flow->tag += n_tokens * each / s.flow->weight;
}

void FairPolicy::window(const WaitingQueue& queue, size_t n_places, std::vector<Sequence*>& out) {
  for (auto& [tenant, flow] : flows_) flow.n_in_window = 0, flow.is_backlogged = false;
  for (const Sequence* s : out) s->flow->is_backlogged = true;
  int n_seen = 0;
  const auto most = static_cast<int32_t>(std::max<size_t>(n_places, 1));  // one, for whom a place may be given up
  queue.each([&](Sequence* s) {
    s->flow->is_backlogged = true;
    if (s->flow->n_in_window < most && out.size() < out.capacity()) {
      ++s->flow->n_in_window;
      out.push_back(s);
    }
    return ++n_seen < kMaxSeen;
  });
  advance();
}

// Virtual time is the tag of who goes next; where nobody waits for anything, all have had what they wanted.
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
      it = flows_.erase(it);  // as if it came anew
      continue;
    }
    if (!is_idle && !PLANTED("service_is_saved_up")) flow.tag = std::max(flow.tag, now_);
    ++it;
  }
}

Sequence* FairPolicy::gives_place(std::span<Sequence* const> running, const Sequence& asker) {
  double weights = 0;
  for (auto& [tenant, flow] : flows_) {
    flow.n_held = 0;
    if (flow.n_sequences > 0) weights += flow.weight;
  }
  for (const Sequence* s : running) ++s->flow->n_held;
  const auto excess = [&](const Flow& flow) {
    return (static_cast<double>(flow.n_held) - part_of(flow, weights, running.size())) / flow.weight;
  };
  const Flow& own = *asker.flow;
  if (static_cast<double>(own.n_held + 1) > part_of(own, weights, running.size())) return nullptr;
  Sequence* best = nullptr;
  for (Sequence* s : running) {
    if (s->flow == &own || s->flow->tag < own.tag || excess(*s->flow) <= 0 || !s->may_be_preempted()) continue;
    if (best == nullptr || excess(*s->flow) >= excess(*best->flow)) best = s;
  }
  return best;
}

Sequence* FairPolicy::victim(std::span<Sequence* const> running, const Sequence& asker) {
  for (auto& [tenant, flow] : flows_) flow.n_held = 0;
  for (const Sequence* s : running) s->flow->n_held += static_cast<int64_t>(s->blocks.size());
  const auto load = [](const Sequence& s) { return static_cast<double>(s.flow->n_held) / s.flow->weight; };
  Sequence* best = nullptr;
  for (Sequence* s : running) {
    const bool gives_way = s->flow == asker.flow ? asker.key < s->key : load(*s) > load(asker);
    if (!gives_way || !s->may_be_preempted()) continue;
    if (best == nullptr || load(*s) >= load(*best)) best = s;
  }
  return best;
}

}  // namespace ibid
