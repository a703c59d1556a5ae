// DraftConfidence: the probability that a draft model's token is the one that the target draws, from the draft model's
// own probability, corrected by what was observed in this sequence and, slowly, in all sequences of this pair of
// models. Only drafted tokens can be observed, so each new sequence decays the pair's statistics: a pair that never
// agreed is tried again now and then.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace ibid {

// How often a pair of models agreed, over all sequences: one number, which reveals nothing about any sequence.
class PairAgreement {
 public:
  explicit PairAgreement(float prior = 0.75F) : prior_(prior) {}
  float rate() const { return (kWeight * prior_ + n_right_) / (kWeight + n_); }
  void observe(bool was_right);
  void begin_sequence() { n_ *= kKeptBySequence, n_right_ *= kKeptBySequence; }

 private:
  static constexpr float kWeight = 8, kKept = 0.998F, kKeptBySequence = 0.97F;
  float prior_;
  float n_ = 0, n_right_ = 0;
};

class DraftConfidence {
 public:
  explicit DraftConfidence(float rate = 0.75F) : rate_(rate) {}
  // For a token with this probability in the draft model.
  float of(float probability) const;
  // For a token that is not drawn yet.
  float of_next() const { return (kSequenceWeight * rate_ + all_.n_right) / (kSequenceWeight + all_.n); }
  void observe(float probability, bool was_right);

 private:
  static constexpr size_t kParts = 8;  // of [0, 1]
  static constexpr float kSequenceWeight = 8;
  struct Seen {
    float n = 0, n_right = 0;  // older observations weigh less
  };
  static size_t part_of(float probability);
  static float prior(float probability);
  float rate_;  // the pair's rate when the sequence began
  Seen all_;
  float n_expected_ = 0;  // of all_.n_right, predicted by the prior
  std::array<Seen, kParts> seen_ = {};
};

}  // namespace ibid
