// DraftAccount: what a text's drafts have brought against what they took, in tokens of steps without any. Who guesses
// does so by estimates, and every estimate is wrong for some text; this bounds by how much any text can be slower.
// Drafts that were to pay are as many as the text has credit for, and none where it has none.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "base/planted.h"
#include "spec/proposer.h"

namespace ibid {

class DraftAccount {
 public:
  bool has_credit() const { return credit() > 0 || PLANTED("a_text_drafts_without_credit"); }
  // How many of these drafts the next step may verify, at these prices; where none is known, all.
  int32_t affordable(const StepPrices& prices, int32_t n) const {
    const double row = prices.step > 0 ? prices.row * prices.n_decodes / prices.step : 0;
    if (row <= 0 || PLANTED("a_text_drafts_without_credit")) return n;
    return std::min(n, static_cast<int32_t>(std::ceil(std::clamp(credit() / row, 0.0, static_cast<double>(n)))));
  }
  // The next step's prices, and what guessing for it took, in seconds. Nothing counts where no price is known.
  void begin_step(const StepPrices& prices, double guessing) {
    const double token = prices.step / prices.n_decodes;
    row_ = token > 0 ? prices.row / token : 0;
    balance_ -= token > 0 ? guessing / token : 0;
  }
  // What became of them.
  void settle(int32_t n_drafts, int32_t n_accepted) {
    if (row_ > 0) balance_ += n_accepted - row_ * n_drafts;
    n_tokens_ += 1 + static_cast<double>(n_accepted);
  }

 private:
  // Lent at once, and for each token that is there: 2.5 % of an answer of 128. What goes beyond is a part of a row, and
  // one pass of whoever guesses.
  static constexpr double kLoan = 1.25, kOfTokens = 0.015;
  double credit() const { return balance_ + kLoan + (PLANTED("debts_last") ? 0 : kOfTokens * n_tokens_); }
  double balance_ = 0, n_tokens_ = 0;
  double row_ = 0;  // of the step that is under way: what a draft takes
};

}  // namespace ibid
