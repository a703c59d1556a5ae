// Pooling: a sequence as one vector, out of its tokens' hidden states after the final norm (what logits are made of).
//
//   mean   (h_0 + h_1 + ... + h_{n-1}) / n, as BERT's users do (Reimers and Gurevych 2019, Sentence-BERT, section 3)
//   last   h_{n-1}: of a causal model the only one that has seen all
//   first  h_0: an encoder's [CLS]
//   each   h_0, h_1, ..., h_{n-1}, as they are: what late interaction compares (Khattab and Zaharia 2020, ColBERT)
//
// The mean's sum is a left fold over ascending positions in double, rounded to float after the division. Each position
// enters once, when it is first computed, so that neither the pieces in which a prompt runs nor a preemption between
// them shows. What is wanted must be computed here: last takes a prefix from the cache, the others take none.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/state/request.h"

namespace ibid {

class Pool {
 public:
  Pool() = default;
  Pool(Pooling pooling, int32_t width) : pooling_(pooling), sum_(static_cast<size_t>(width)) {}

  // The first position whose hidden state is still wanted, of a text of n tokens; of one of them at least, so that
  // there is something to compute.
  int32_t first_wanted(int32_t n) const {
    const bool is_first_here = pooling_ == Pooling::kFirst && n_seen_ > 0;
    return pooling_ == Pooling::kLast || is_first_here ? n - 1 : std::min(n_seen_, n - 1);
  }
  // Those of positions `from` on, [n, C], of a text of n_tokens. Empty: nothing is known of them.
  void add(int32_t from, int32_t n_tokens, std::span<const float> states);
  std::vector<float> vector();  // [C], of each [n, C]; once, when all are there

 private:
  Pooling pooling_ = Pooling::kNone;
  int32_t n_seen_ = 0;  // positions that are in the sum
  std::vector<double> sum_;
  std::vector<float> rows_;  // of each
};

}  // namespace ibid
