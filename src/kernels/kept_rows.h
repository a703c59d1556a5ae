// Which rows of a KV head a sequence keeps when some are evicted (KeptRows, kernels/forward_batch.h): by what the last
// queries read, as SnapKV does (Li et al., 2024, "SnapKV: LLM Knows What You Are Looking for Before Generation",
// section 4), over a fixed prompt.
//
// The order of sums is a law, as attention's (docs/design.md section 5, law 1); all in F32, no fused multiply-add. A
// row is a query head of the group with one of the last n_queries tokens; rows ascend by head, then by token.
//   q' = q * scale (of keys in four bits then turned: turn_out); a score is the sum of the products q'[d] k[d], d
//   ascending, from 0.
//   A row's m and l: over tiles of 64 places from 0 on, of its visible places alone, with m = -inf, l = 0 at first:
//     m' = max(m, scores); l = l * exp(m - m'); then l += exp(score - m'), places ascending.
//   sum[j] = for rows ascending: + exp(score of j - m) / l, of the rows that see j, for n_first <= j < n_all - n_last.
//   score[j] = sum of sum[i] for j - pool / 2 <= i <= j + pool / 2 within that range, i ascending.
// Kept are the highest scores; of equal ones the lower place. A score that is no number is below all others.
// Means over rows and neighbours would divide all by the same number, so that sums choose the same rows.
#pragma once

#include <cstdint>
#include <span>

namespace ibid {

inline constexpr int32_t kMaxScoringQueries = 256;  // KeptRows::n_queries

// Writes the `out.size()` places with the highest scores to `out`, ascending; scores[i] is of place first + i. Permutes
// `order`, which is as long as scores.
void choose_rows(std::span<const float> scores, int32_t first, std::span<int32_t> order, std::span<int32_t> out);

}  // namespace ibid
