// Log-probabilities of one row of logits, in the order of sums that DESIGN section 5 gives to rows: 16 lanes, one tree.
#pragma once

#include <span>

namespace ibid {

// log(sum(exp(logits))).
float log_sum_exp(std::span<const float> logits);

}  // namespace ibid
