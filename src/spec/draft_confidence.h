// DraftConfidence: how likely a draft model's token is the one that the target draws, by the probability that the
// draft model itself gave it, corrected by what this sequence and, slowly, all sequences of this pair of models turned
// out to be. Only what was drafted can be counted, so what is known of a pair is forgotten with each new sequence: a
// pair that never agreed is tried again now and then.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace ibid {

// How often a pair of models agreed, over all sequences: one number, which reveals nothing of any sequence.
class PairAgreement {
 public:
  explicit PairAgreement(float prior = 0.75F) : prior_(prior) {}
  float rate() const { return (kWeight * prior_ + n_right_) / (kWeight + n_); }
  void observe(bool was_right);
  void begin_text() { n_ *= kKeptByText, n_right_ *= kKeptByText; }

 private:
  static constexpr float kWeight = 8, kKept = 0.998F, kKeptByText = 0.97F;
  float prior_;
  float n_ = 0, n_right_ = 0;
};

class DraftConfidence {
 public:
  explicit DraftConfidence(float rate = 0.75F) : rate_(rate) {}
  // Of a token that the draft model gave this probability.
  float of(float probability) const;
  // Of one that is not drawn yet.
  float of_next() const { return (kTextWeight * rate_ + all_.n_right) / (kTextWeight + all_.n); }
  void observe(float probability, bool was_right);

 private:
  static constexpr size_t kParts = 8;  // of [0, 1]
  static constexpr float kTextWeight = 8;
  struct Seen {
    float n = 0, n_right = 0;  // older ones weigh less
  };
  static size_t part_of(float probability);
  static float prior(float probability);
  float rate_;  // of the pair, when the sequence began
  Seen all_;
  float n_expected_ = 0;  // of all_.n_right, by the prior
  std::array<Seen, kParts> seen_ = {};
};

}  // namespace ibid
