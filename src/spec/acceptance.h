// Acceptance: how likely a looked-up token is the sequence's next one, by how long the match is that it was found with.
// A prior that was measured, corrected by what each sequence itself turned out to be, as a whole and for each length:
// whatever was found counts, also what was never drafted, so that a sequence that stops repeating itself is left alone
// and one that begins to is found out.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace ibid {

class Acceptance {
 public:
  static constexpr float kLeastLikely = 0.02F;  // that a chain of drafts goes on at

  // `trust`: what a sequence is expected to be like at first, as a part of the prior.
  explicit Acceptance(float temperature = 0, float trust = 1) : temperature_(temperature), trust_(trust) {}
  float of(int32_t match_len) const;  // at least 1 token
  void observe(int32_t match_len, bool was_right);

 private:
  static constexpr size_t kLengths = 10;
  struct Seen {
    float n = 0, n_right = 0;  // older ones weigh less
  };
  static size_t index_of(int32_t match_len);
  float prior(size_t index) const;
  float temperature_, trust_;
  Seen all_;              // of all lengths
  float n_expected_ = 0;  // of all_.n_right, by the prior
  std::array<Seen, kLengths> seen_ = {};
};

}  // namespace ibid
