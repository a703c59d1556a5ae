#include "spec/experimental/typical.h"

#include <algorithm>

#include "kernels/math.h"

namespace ibid {

double TypicalAcceptance::threshold(double entropy) { return std::min(kEpsilon, kDelta * math::exp(-entropy)); }

TokenId TypicalRule::draw(std::span<const Candidate> support, double total_weight, uint64_t seed, int32_t position) {
  double entropy = 0;
  for (const Candidate& c : support) {
    const double p = static_cast<double>(c.weight) / total_weight;
    if (p > 0) entropy -= p * math::log(p);
  }
  const double least = TypicalAcceptance::threshold(entropy) * total_weight;
  for (const Sibling& s : siblings_) {
    const auto it = std::ranges::find(support, raw(s.token), &Candidate::id);
    if (it != support.end() && static_cast<double>(it->weight) > least) return s.token;
  }
  return FirstOfRace(1).draw(support, total_weight, seed, position);
}

}  // namespace ibid
