#include "spec/drawn/draft_confidence.h"

#include <algorithm>

namespace ibid {
namespace {

constexpr float kPartWeight = 4;          // weight of the whole sequence's rate, in observations of a part
constexpr float kKeptOfSequence = 0.97F;  // decay per observation
constexpr float kSurest = 0.98F;

}  // namespace

void PairAgreement::observe(bool was_right) {
  n_ = kKept * n_ + 1;
  n_right_ = kKept * n_right_ + (was_right ? 1.0F : 0.0F);
}

size_t DraftConfidence::part_of(float probability) {
  return std::min(kParts - 1, static_cast<size_t>(std::max(0.0F, probability) * kParts));
}

// A draft model with a high probability is mostly right; one with a low probability is right about as often as two
// samples agree.
float DraftConfidence::prior(float probability) { return 0.2F + 0.75F * std::clamp(probability, 0.0F, 1.0F); }

float DraftConfidence::of(float probability) const {
  // The prior assumes a pair with that rate; the sequence's own drafts are compared with what the prior expected of
  // them.
  const float expected = kSequenceWeight * 0.6F + n_expected_, right = kSequenceWeight * rate_ + all_.n_right;
  const Seen& seen = seen_[part_of(probability)];
  const float of_all = std::min(kSurest, prior(probability) * right / expected);
  return std::min(kSurest, (kPartWeight * of_all + seen.n_right) / (kPartWeight + seen.n));
}

void DraftConfidence::observe(float probability, bool was_right) {
  for (Seen* seen : {&all_, &seen_[part_of(probability)]}) {
    seen->n = kKeptOfSequence * seen->n + 1;
    seen->n_right = kKeptOfSequence * seen->n_right + (was_right ? 1.0F : 0.0F);
  }
  n_expected_ = kKeptOfSequence * n_expected_ + prior(probability);
}

}  // namespace ibid
