// DraftAccount: gain of a sequence's drafts minus their cost, in tokens of steps without drafts. The proposer's choice
// rests on estimates, which can be wrong for a sequence; the account bounds how much slower any sequence can get.
// Drafts that must pay off are limited to the sequence's credit; without credit there are none.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "spec/proposer.h"

namespace ibid {

class DraftAccount {
 public:
  bool has_credit() const { return credit() > 0; }
  // Starts a step with these prices; while they are unknown, nothing is charged.
  void begin_step(const StepPrices& prices) {
    token_ = prices.step / prices.n_decodes;
    row_ = token_ > 0 ? prices.row / token_ : 0;
  }
  // Returns how many of n drafts the step may verify.
  int32_t affordable(int32_t n) const {
    if (row_ <= 0) return n;
    return std::min(n, static_cast<int32_t>(std::ceil(std::clamp(credit() / row_, 0.0, static_cast<double>(n)))));
  }
  // Charges the time spent on drafting for the step.
  void drafted(double seconds) { balance_ -= token_ > 0 ? seconds / token_ : 0; }
  // Settles the step's drafts.
  void settle(int32_t n_drafts, int32_t n_accepted) {
    if (row_ > 0) balance_ += n_accepted - row_ * n_drafts;
    n_tokens_ += 1 + static_cast<double>(n_accepted);
  }

 private:
  // The initial loan, and the loan per token: 2.5 % of an answer of 128 tokens. The balance can fall below it by part
  // of a row and one pass of the proposer.
  static constexpr double kLoan = 1.25, kOfTokens = 0.015;
  double credit() const { return balance_ + kLoan + kOfTokens * n_tokens_; }
  double balance_ = 0, n_tokens_ = 0;
  double token_ = 0, row_ = 0;  // of the current step: seconds of a token without drafts; cost of a draft in tokens
};

}  // namespace ibid
