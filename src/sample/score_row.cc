#include <algorithm>
#include <limits>

#include "kernels/row_math.h"
#include "sample/row_functions.h"
#include "sample/sampler.h"
#include "sample/sort_candidates.h"

namespace ibid {

// A buffer of twice as many, cut to the n best whenever it is full, whatever the order in which they come.
void keep_best(std::span<const float> row, size_t n, SamplerScratch& scratch) {
  std::vector<Candidate>& best = scratch.best;
  constexpr size_t kLeast = 64;
  const size_t room = std::max(kLeast, 2 * std::min(n, row.size()));
  best.clear();
  best.reserve(room);
  const auto cut = [&] {
    if (best.size() <= n) return;
    std::nth_element(best.begin(), best.begin() + static_cast<ptrdiff_t>(n) - 1, best.end(), goes_before);
    best.resize(n);
  };
  float least = -std::numeric_limits<float>::infinity();  // ids ascend, so that one that is no higher is too late
  bool is_cut = false;
  for (size_t i = 0; i < row.size(); ++i) {
    if (is_cut && !(row[i] > least)) continue;
    best.push_back({.logit = row[i], .id = static_cast<int32_t>(i)});
    if (best.size() < room) continue;
    cut();
    is_cut = true;
    least = best[n - 1].logit;
  }
  cut();
  sort_candidates(best, scratch.spare);
}

Error unsound_row() {
  return unavailable("the model computed a logit that is not a number or is infinite; its weights may be damaged");
}

Result<TokenRecord> score_row(std::span<const float> logits, TokenId chosen, int32_t n_top, SamplerScratch& scratch) {
  if (!row_is_sound(logits) || !(row_max(logits) > -std::numeric_limits<float>::infinity())) return unsound_row();
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
