#include <algorithm>

#include "sample/row_functions.h"
#include "sample/sampler.h"

namespace ibid {

Sample score_row(std::span<const float> logits, TokenId chosen, int32_t n_top, SamplerScratch& scratch) {
  scratch.log_probs.resize(logits.size());
  row_log_softmax(scratch.log_probs, logits);
  Sample out;
  out.chosen = {.token = chosen, .raw = scratch.log_probs[static_cast<size_t>(raw(chosen))]};
  if (n_top <= 0) return out;
  // A short sorted list: n_top is small beside the vocabulary, and few tokens get into it.
  auto before = [](const ScoredToken& a, const ScoredToken& b) {
    return a.raw != b.raw ? a.raw > b.raw : a.token < b.token;
  };
  for (size_t i = 0; i < logits.size(); ++i) {
    ScoredToken t{.token = TokenId{static_cast<int32_t>(i)}, .raw = scratch.log_probs[i]};
    bool full = static_cast<int32_t>(out.top.size()) == n_top;
    if (full && !before(t, out.top.back())) continue;
    out.top.insert(std::upper_bound(out.top.begin(), out.top.end(), t, before), t);
    if (full) out.top.pop_back();
  }
  return out;
}

}  // namespace ibid
