#include "engine/schedule/prompt_turns.h"

#include <tuple>

namespace ibid {

PromptTurns::PromptTurns(const Policy& policy, size_t n_candidates)
    : policy_(policy), shortest_first_(policy.shortest_first()) {
  candidates_.reserve(n_candidates);
  flows_.reserve(n_candidates);
}

void PromptTurns::list(std::span<Sequence* const> running, std::span<Sequence* const> waiting) {
  candidates_.clear();
  flows_.clear();
  oldest_ = first_waiting_ = nullptr;
  const auto add = [this](Sequence* s, bool waits) {
    candidates_.push_back({s, waits, policy_.turn_of(*s), s->account.key, n_expected(*s)});
  };
  for (Sequence* s : running) add(s, false);
  for (Sequence* s : waiting) add(s, true);
  if (candidates_.empty()) return;
  const auto in_order = [](const Candidate& a, const Candidate& b) {
    return a.turn != b.turn ? a.turn < b.turn : a.key < b.key;
  };
  oldest_ = first(in_order).sequence;
  const Candidate& waits_first =
      first([&](const Candidate& a, const Candidate& b) { return a.waits != b.waits ? a.waits : in_order(a, b); });
  if (waits_first.waits) first_waiting_ = waits_first.sequence;
  sort();
}

// The candidate that none is before.
template <typename Before>
const PromptTurns::Candidate& PromptTurns::first(Before before) const {
  const Candidate* best = &candidates_.front();
  for (const Candidate& c : candidates_) {
    if (before(c, *best)) best = &c;
  }
  return *best;
}

// Among those of one flow, which have the same turn whatever is granted.
bool PromptTurns::goes_before(const Candidate& a, const Candidate& b) const {
  if (!shortest_first_) return a.key < b.key;
  return std::tuple(a.key.rank, a.n_expected, a.key.id) < std::tuple(b.key.rank, b.n_expected, b.key.id);
}

// Each flow's candidates stand together, the next one last: a grant changes the turns of whole flows.
void PromptTurns::sort() {
  std::ranges::sort(candidates_, [this](const Candidate& a, const Candidate& b) {
    return a.sequence->account.flow != b.sequence->account.flow ? a.sequence->account.flow < b.sequence->account.flow
                                                                : goes_before(b, a);
  });
  for (size_t i = 0; i < candidates_.size(); ++i) {
    const bool is_first = i == 0 || candidates_[i].sequence->account.flow != candidates_[i - 1].sequence->account.flow;
    if (is_first) flows_.push_back({.begin = i});
    flows_.back().end = i + 1;
  }
}

std::optional<PromptTurns::Candidate> PromptTurns::take_next() {
  Flow* best = nullptr;
  double best_turn = 0;
  for (Flow& flow : flows_) {
    if (flow.begin == flow.end) continue;
    const Candidate& next = candidates_[flow.end - 1];
    const double turn = policy_.turn_of(*next.sequence);
    const bool is_better =
        best == nullptr || turn < best_turn || (turn == best_turn && goes_before(next, candidates_[best->end - 1]));
    if (is_better) best = &flow, best_turn = turn;
  }
  if (best == nullptr) return {};
  return candidates_[--best->end];
}

}  // namespace ibid
