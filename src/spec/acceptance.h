// Acceptance: the probability that a looked-up token is the sequence's next one, by the length of the match that found
// it. A measured prior, corrected by what was observed in each sequence, overall and per length. Found tokens count
// even if they were not drafted, so drafting stops for a sequence that no longer repeats itself and starts for one that
// begins to.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace ibid {

class Acceptance {
 public:
  static constexpr float kLeastLikely = 0.02F;  // a chain of drafts ends below this probability

  // `trust`: the acceptance expected of a sequence at first, as a factor of the prior.
  explicit Acceptance(float temperature = 0, float trust = 1) : temperature_(temperature), trust_(trust) {}
  float of(int32_t match_len) const;  // at least 1 token
  void observe(int32_t match_len, bool was_right);

 private:
  static constexpr size_t kLengths = 10;
  struct Seen {
    float n = 0, n_right = 0;  // older observations weigh less
  };
  static size_t index_of(int32_t match_len);
  float prior(size_t index) const;
  float temperature_, trust_;
  Seen all_;              // of all lengths
  float n_expected_ = 0;  // of all_.n_right, predicted by the prior
  std::array<Seen, kLengths> seen_ = {};
};

}  // namespace ibid
