// ExpertRows: the experts that each token of a step uses, and the same pairs of token and expert in the order of the
// experts, so that an expert's product runs over its rows in one piece.
//
//   T tokens use k of E experts each: T k rows. Rows of an expert are neighbours, experts ascend, and the tokens of an
//   expert ascend (a counting sort). The arrays are the caller's; ops::route fills them.
//
// Router: how a layer chooses, as data. Letters: logits x[E] of a token, score s[E], choice c[E].
//
//   1. s = softmax(x), sigmoid(x), or x itself (kChosenSoftmax).
//   2. c = s + bias, where there is a bias. It takes part in the choice alone. NaN counts as -infinity.
//   3. With n_groups above 1 experts lie in as many groups of neighbours. The groups_used groups of the highest scores
//      take part; a group's score is its highest c (group_by_highest) or the sum of its two highest. Ties: the lower
//      group.
//   4. The k experts of the highest c are used. Ties: the lower index.
//   5. weight = s of a used expert; of kChosenSoftmax exp(x - max) / sum(exp(x - max)), both over the used experts.
//   6. normalises: weight = weight / (max(sum, sum_floor) + sum_epsilon), the sum over the used experts.
//   7. weight = weight * scale, where scale is not 1; then weight * expert_scale of the expert, where there are some.
//
// All is fp32; sums ascend by expert from +0, one after the other; exp is kernels/math.h's.
//
// Plain data; any thread.
#pragma once

#include <algorithm>
#include <cstdint>

namespace ibid {

inline constexpr int32_t kMaxExperts = 1024;      // E
inline constexpr int32_t kMaxExpertsUsed = 64;    // k
inline constexpr int32_t kMaxExpertGroups = 128;  // of a router, of which a token uses some

struct ExpertRows {
  int32_t n_tokens = 0, n_used = 0, n_experts = 0;  // T, k, E
  int32_t* expert = nullptr;                        // [T, k], ascending for each token
  float* weight = nullptr;                          // [T, k]
  int32_t* row = nullptr;                           // [T, k]: the row of the token's j-th expert
  int32_t* token = nullptr;                         // [T k]: the token of each row
  int32_t* first_row = nullptr;                     // [E + 1]: expert e has rows first_row[e] to first_row[e + 1]

  int32_t n_rows() const { return n_tokens * n_used; }
  int32_t n_rows_of(int32_t e) const { return first_row[e + 1] - first_row[e]; }
  int32_t expert_of(int64_t of_row) const {
    return static_cast<int32_t>(std::upper_bound(first_row, first_row + n_experts, of_row) - first_row) - 1;
  }
};

enum class RouterScore : uint8_t { kSoftmax, kSigmoid, kChosenSoftmax };

struct Router {
  RouterScore score = RouterScore::kSoftmax;
  bool normalises = false;
  float sum_floor = 0.0f, sum_epsilon = 0.0f;
  float scale = 1.0f;
  int32_t n_groups = 1, groups_used = 1;
  bool group_by_highest = false;
  const float* bias = nullptr;          // [E], the model's; null: none
  const float* expert_scale = nullptr;  // [E], likewise
};

}  // namespace ibid
