// ProposerChain: several proposers in order. A later proposer keeps the drafts of an earlier one unless it expects its
// own to be likelier, so the most reliable come first and those that cost time last.
#pragma once

#include <algorithm>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "spec/proposer.h"

namespace ibid {

// Combines the extras of several proposers; proposers without extras cost nothing.
class ExtrasOfAll final : public ProposerExtras {
 public:
  void add(ProposerExtras* extras) {
    if (extras != nullptr) all_.push_back(extras);
  }
  bool empty() const { return all_.empty(); }

  bool reads_hidden() const override {
    return std::ranges::any_of(all_, [](const auto* e) { return e->reads_hidden(); });
  }
  void saw(int64_t sequence, int32_t n_tokens, std::span<const float> hidden) override {
    for (auto* e : all_) e->saw(sequence, n_tokens, hidden);
  }
  // At most one proposer has taps.
  const HiddenStates* taps() const override {
    for (const auto* e : all_) {
      if (e->taps() != nullptr) return e->taps();
    }
    return nullptr;
  }
  void read(const ReadTokens& tokens) override {
    for (auto* e : all_) e->read(tokens);
  }
  bool reads_refused() const override {
    return std::ranges::any_of(all_, [](const auto* e) { return e->reads_refused(); });
  }
  void refused(int64_t sequence, int32_t n_tokens, std::span<const RefusedDraft> drafts) override {
    for (auto* e : all_) e->refused(sequence, n_tokens, drafts);
  }
  bool keeps_answers() const override {
    return std::ranges::any_of(all_, [](const auto* e) { return e->keeps_answers(); });
  }
  void ended(const EndedSequence& seq) override {
    for (auto* e : all_) {
      if (e->keeps_answers()) e->ended(seq);
    }
  }

 private:
  std::vector<ProposerExtras*> all_;
};

class ProposerChain final : public Proposer {
 public:
  // The first n_free proposers also propose for sequences with `free_alone`.
  explicit ProposerChain(std::vector<std::unique_ptr<Proposer>> proposers,
                         size_t n_free = std::numeric_limits<size_t>::max())
      : proposers_(std::move(proposers)), n_free_(n_free) {
    for (const auto& p : proposers_) extras_.add(p->extras());
  }
  void begin_step(const StepPrices& prices) override {
    for (auto& p : proposers_) p->begin_step(prices);
  }
  double spent() const override {
    double sum = 0;
    for (const auto& p : proposers_) sum += p->spent();
    return sum;
  }
  bool take_next() override {
    return std::ranges::any_of(proposers_, [](auto& p) { return p->take_next(); });
  }
  void propose(const ProposalInput& input, Drafts& drafts) override {
    const Proposal one{input, &drafts};
    propose_all({&one, 1});
  }
  void propose_all(std::span<const Proposal> proposals) override {
    const bool all_want_all = std::ranges::none_of(proposals, [](const Proposal& p) { return p.input.free_alone; });
    rest_.clear();
    for (size_t i = 0; i < proposers_.size(); ++i) {
      if (i == n_free_ && !all_want_all) {
        for (const Proposal& p : proposals) {
          if (!p.input.free_alone) rest_.push_back(p);
        }
        proposals = rest_;
      }
      if (!proposals.empty()) proposers_[i]->propose_all(proposals);
    }
  }
  ProposerExtras* extras() override { return extras_.empty() ? nullptr : &extras_; }
  void forget(int64_t sequence) override {
    for (auto& p : proposers_) p->forget(sequence);
  }
  void self_check(const HeldSequence& seq) const override {
    for (const auto& p : proposers_) p->self_check(seq);
  }

 private:
  std::vector<std::unique_ptr<Proposer>> proposers_;
  size_t n_free_;
  ExtrasOfAll extras_;
  std::vector<Proposal> rest_;  // of a step
};

}  // namespace ibid
