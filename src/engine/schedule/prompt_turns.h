// PromptTurns: in which order the prompts of a step are served. Candidates are the prompts of running sequences and of
// those waiting ones for which there is a place; each step lists them again.
//
// Whose turn it is, by the policy: the flow with the smallest turn, which changes with what is granted; within a flow,
// of sequences of equal rank the one with the least to compute (Policy::shortest_first()), else the oldest. The
// scheduler grants and admits; this holds the order alone. The engine's thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "engine/state/policy.h"
#include "engine/state/sequence.h"

namespace ibid {

// Tokens of a sequence that are not computed yet and not known to be cached.
inline int32_t n_expected(const Sequence& s) { return s.n_tokens() - std::max(s.n_computed(), s.account.n_known); }

class PromptTurns {
 public:
  struct Candidate {
    Sequence* sequence = nullptr;
    bool waits = false;      // in the queue; else it runs
    double turn = 0;         // Policy::turn_of() when they were listed
    OrderKey key;            // the sequence's
    int32_t n_expected = 0;  // tokens to compute
  };

  // `policy` outlives it. Room for so many prompts of a step; nothing else allocates.
  PromptTurns(const Policy& policy, size_t n_candidates);

  // Lists prompts of a step: those of `running` that still run, then `waiting`.
  void list(std::span<Sequence* const> running, std::span<Sequence* const> waiting);
  bool empty() const { return candidates_.empty(); }
  size_t n() const { return candidates_.size(); }  // as they were listed
  // First in order of turns and keys; there is one.
  const Sequence* oldest() const { return oldest_; }
  // The same, of those that wait; null: none waits.
  const Sequence* first_waiting() const { return first_waiting_; }

  // Whose turn it is; none where all have had theirs.
  std::optional<Candidate> take_next();
  // Takes away turns of candidates that are still to come.
  template <typename Drops>
  void drop_if(Drops drops) {
    for (Flow& flow : flows_) {
      const auto at = [this](size_t i) { return candidates_.begin() + static_cast<std::ptrdiff_t>(i); };
      flow.end = static_cast<size_t>(std::remove_if(at(flow.begin), at(flow.end), drops) - candidates_.begin());
    }
  }
  void drop_all() { flows_.clear(); }

 private:
  struct Flow {
    size_t begin = 0, end = 0;  // of candidates_, those that have not had their turn
  };
  template <typename Before>
  const Candidate& first(Before before) const;
  bool goes_before(const Candidate& a, const Candidate& b) const;
  void sort();

  const Policy& policy_;
  const bool shortest_first_;
  std::vector<Candidate> candidates_;
  std::vector<Flow> flows_;
  const Sequence* oldest_ = nullptr;
  const Sequence* first_waiting_ = nullptr;
};

}  // namespace ibid
