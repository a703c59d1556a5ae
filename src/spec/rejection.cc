#include "spec/rejection.h"

#include <algorithm>
#include <limits>

#include "base/planted.h"
#include "kernels/math.h"
#include "sample/philox.h"

namespace ibid {
namespace {

// The race of docs/design.md section 5, law 4, over weights of any kind: the least E / weight wins, ties to the lower
// id.
class WeightedRace {
 public:
  WeightedRace(uint64_t seed, int32_t position, NoisePurpose purpose)
      : seed_(seed), position_(position), purpose_(purpose) {}
  void enter(int32_t id, double weight) {
    if (!(weight > 0)) return;
    const auto group = static_cast<uint32_t>(id) / 4;
    if (group != group_) words_ = noise_words(seed_, position_, purpose_, group_ = group);
    const double time = -math::log1p(-open_unit(words_[static_cast<size_t>(id) % 4])) / weight;
    if (time > best_ || (time == best_ && id > winner_)) return;
    best_ = time, winner_ = id;
  }
  bool is_over() const { return winner_ >= 0; }
  TokenId winner() const { return TokenId{winner_}; }

 private:
  uint64_t seed_;
  int32_t position_;
  NoisePurpose purpose_;
  uint32_t group_ = std::numeric_limits<uint32_t>::max();
  std::array<uint32_t, 4> words_ = {};
  double best_ = std::numeric_limits<double>::infinity();
  int32_t winner_ = -1;
};

}  // namespace

TokenId ProposeRule::draw(std::span<const Candidate> support, double total_weight, uint64_t seed, int32_t position) {
  std::ranges::fill(q_, 0.0F);
  WeightedRace race(seed, position, NoisePurpose::kPropose);
  for (const Candidate& c : support) {
    q_[static_cast<size_t>(c.id)] = static_cast<float>(static_cast<double>(c.weight) / total_weight);
    race.enter(c.id, c.weight);
  }
  return race.winner();
}

double VerifyRule::proposed(int32_t id) const {
  if (q_.empty() || PLANTED("only_the_drafts_own_q_is_known"))
    return TokenId{id} != draft_ ? 0 : q_.empty() ? 1 : static_cast<double>(q_[static_cast<size_t>(id)]);
  return static_cast<double>(q_[static_cast<size_t>(id)]);
}

TokenId VerifyRule::draw(std::span<const Candidate> support, double total_weight, uint64_t seed, int32_t position) {
  double p_of_draft = 0;
  for (const Candidate& c : support) {
    if (TokenId{c.id} == draft_) p_of_draft = static_cast<double>(c.weight) / total_weight;
  }
  const double q_of_draft = proposed(raw(draft_));
  const double u = open_unit(noise_words(seed, position, NoisePurpose::kAccept, 0)[0]);
  const bool is_accepted = PLANTED("the_ratio_is_inverted")     ? u * p_of_draft < q_of_draft
                           : PLANTED("every_draft_is_accepted") ? p_of_draft > 0
                           : PLANTED("q_counts_as_one")         ? u < p_of_draft
                                                                : u * q_of_draft < p_of_draft;
  if (is_accepted) return draft_;
  // Noise that the proposal has used tells where q is large.
  const NoisePurpose purpose =
      PLANTED("the_residual_shares_the_proposals_noise") ? NoisePurpose::kPropose : NoisePurpose::kResidual;
  WeightedRace race(seed, position, purpose), all(seed, position, purpose);
  for (const Candidate& c : support) {
    const double p = static_cast<double>(c.weight) / total_weight, q = proposed(c.id);
    all.enter(c.id, p);
    if (PLANTED("the_residual_forgets_q")) {
      race.enter(c.id, p);
    } else if (PLANTED("the_residual_is_not_clamped")) {
      race.enter(c.id, p > q ? p - q : q - p);
    } else {
      race.enter(c.id, Rejection<double>::residual(p, q));
    }
  }
  return race.is_over() ? race.winner() : all.winner();  // p is q but for rounding
}

}  // namespace ibid
