// DraftAccount: what a sequence's drafts have brought against what they took, in tokens of steps without any. The
// proposer does so by estimates, and every estimate is wrong for some sequence; this bounds by how much any sequence
// can be slower. Drafts that were to pay are as many as the sequence has credit for, and none where it has none.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "spec/proposer.h"

namespace ibid {

class DraftAccount {
 public:
  bool has_credit() const { return credit() > 0; }
  // At these prices; where none is known, nothing counts.
  void begin_step(const StepPrices& prices) {
    token_ = prices.step / prices.n_decodes;
    row_ = token_ > 0 ? prices.row / token_ : 0;
  }
  // How many of n drafts the step may verify.
  int32_t affordable(int32_t n) const {
    if (row_ <= 0) return n;
    return std::min(n, static_cast<int32_t>(std::ceil(std::clamp(credit() / row_, 0.0, static_cast<double>(n)))));
  }
  // What drafting for the step took.
  void drafted(double seconds) { balance_ -= token_ > 0 ? seconds / token_ : 0; }
  // What became of them.
  void settle(int32_t n_drafts, int32_t n_accepted) {
    if (row_ > 0) balance_ += n_accepted - row_ * n_drafts;
    n_tokens_ += 1 + static_cast<double>(n_accepted);
  }

 private:
  // Lent at once, and for each token that is there: 2.5 % of an answer of 128. What goes beyond is a part of a row, and
  // one pass of the proposer.
  static constexpr double kLoan = 1.25, kOfTokens = 0.015;
  double credit() const { return balance_ + kLoan + kOfTokens * n_tokens_; }
  double balance_ = 0, n_tokens_ = 0;
  double token_ = 0, row_ = 0;  // of the step that is under way: a token's seconds without drafts; what a draft takes
};

}  // namespace ibid
