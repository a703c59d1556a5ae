#include <algorithm>
#include <functional>
#include <limits>

#include "kernels/row_math.h"
#include "sample/sampler.h"
#include "sample/sort_candidates.h"

namespace ibid {

// With many blocks, n of them have a highest of at least `least`, so at least n tokens have: the other blocks need no
// look. In a row without an order that leaves some more than n.
void keep_best(std::span<const float> row, size_t n, SamplerScratch& scratch) {
  constexpr float kMasked = -std::numeric_limits<float>::infinity();
  std::vector<Candidate>& best = scratch.best;
  best.clear();
  n = std::min(n, row.size());
  if (n == 0) return;
  const size_t n_blocks = (row.size() + kMaxBlock - 1) / kMaxBlock;
  scratch.block_max.resize(2 * n_blocks);
  const auto highest = std::span(scratch.block_max).first(n_blocks),
             ranked = std::span(scratch.block_max).last(n_blocks);
  row_block_max(highest, row);
  float least = kMasked;
  if (n <= n_blocks) {
    std::ranges::copy(highest, ranked.begin());
    const auto nth = ranked.begin() + static_cast<ptrdiff_t>(n) - 1;
    std::nth_element(ranked.begin(), nth, ranked.end(), std::greater<>());
    least = *nth;
  }
  const auto add = [&](size_t i) { best.push_back({.logit = row[i], .id = static_cast<int32_t>(i)}); };
  for (size_t b = 0; b < n_blocks; ++b) {
    if (!(highest[b] >= least) || highest[b] == kMasked) continue;
    for (size_t i = b * kMaxBlock; i < std::min(row.size(), (b + 1) * kMaxBlock); ++i) {
      if (row[i] >= least && row[i] > kMasked) add(i);
    }
  }
  for (size_t i = 0; best.size() < n; ++i) {  // then all that are possible are there
    if (row[i] == kMasked) add(i);
  }
  if (best.size() > n) {
    std::nth_element(best.begin(), best.begin() + static_cast<ptrdiff_t>(n) - 1, best.end(), goes_before);
    best.resize(n);
  }
  sort_candidates(best, scratch.spare);
}

Error unsound_row() {
  return unavailable("the model computed a logit that is not a number or is infinite; its weights may be damaged");
}

Result<TokenRecord> score_row(std::span<const float> logits, TokenId chosen, int32_t n_top, SamplerScratch& scratch) {
  if (const RowLook look = row_look(logits); !look.is_sound || look.n_possible == 0) return unsound_row();
  scratch.log_probs.resize(logits.size());
  row_log_softmax(scratch.log_probs, logits);
  TokenRecord out;
  out.chosen = {.token = chosen, .raw = scratch.log_probs[static_cast<size_t>(raw(chosen))]};
  if (n_top <= 0) return out;
  keep_best(scratch.log_probs, static_cast<size_t>(n_top), scratch);
  out.top.reserve(scratch.best.size());
  for (const Candidate& c : scratch.best) out.top.push_back({.token = TokenId{c.id}, .raw = c.logit});
  return out;
}

}  // namespace ibid
