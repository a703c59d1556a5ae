// Right and wrong ways to verify one drawn draft, by plain random numbers, so that a test of draws shows which of them
// it sees.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <random>
#include <span>
#include <string_view>
#include <vector>

namespace ibid::testing {

// Draws from a law in constant time (Walker, 1977; Vose, 1991).
class Alias {
 public:
  explicit Alias(std::span<const double> weights) : part_(weights.size()), other_(weights.size()) {
    double sum = 0;
    for (const double w : weights) sum += w;
    std::vector<int32_t> small, large;
    for (size_t x = 0; x < weights.size(); ++x) {
      part_[x] = weights[x] / sum * static_cast<double>(weights.size());
      other_[x] = static_cast<int32_t>(x);
      (part_[x] < 1 ? small : large).push_back(static_cast<int32_t>(x));
    }
    while (!small.empty() && !large.empty()) {
      const auto s = static_cast<size_t>(small.back()), l = static_cast<size_t>(large.back());
      small.pop_back();
      other_[s] = static_cast<int32_t>(l);
      part_[l] -= 1 - part_[s];
      if (part_[l] >= 1) continue;
      large.pop_back();
      small.push_back(static_cast<int32_t>(l));
    }
    for (const int32_t x : small) part_[static_cast<size_t>(x)] = 1;  // but for rounding
    for (const int32_t x : large) part_[static_cast<size_t>(x)] = 1;
  }
  size_t draw(std::mt19937_64& random) const {
    const auto x = static_cast<size_t>(random() % part_.size());
    return unit(random) < part_[x] ? x : static_cast<size_t>(other_[x]);
  }
  static double unit(std::mt19937_64& random) { return static_cast<double>(random() >> 11) * 0x1p-53; }

 private:
  std::vector<double> part_;
  std::vector<int32_t> other_;
};

enum class Way : uint8_t {
  kRight,
  kInverted,           // accepted with q / p
  kEveryDraft,         // accepted whatever q is
  kQIsOne,             // accepted with p
  kForgetsQ,           // refused: drawn from p
  kNotClamped,         // refused: drawn from abs(p - q)
  kOwnQAlone,          // refused: drawn from p without what q has of the draft alone
  kAgreement,          // accepted where a draw from p is the draft (row S8)
  kUnlikelyIsDropped,  // a draft that q thinks unlikely is not offered, and the token is drawn from p
  kBonusOfRowBefore,   // the bonus token is drawn from the row before its own
};
struct NamedWay {
  Way way;
  std::string_view name;
};
inline constexpr std::array<NamedWay, 10> kWays = {{{Way::kRight, "as it should be"},
                                                    {Way::kInverted, "inverted"},
                                                    {Way::kEveryDraft, "every draft"},
                                                    {Way::kQIsOne, "q counts as one"},
                                                    {Way::kForgetsQ, "the residual forgets q"},
                                                    {Way::kNotClamped, "the residual is not clamped"},
                                                    {Way::kOwnQAlone, "only the draft's own q is known"},
                                                    {Way::kAgreement, "agreement of two draws"},
                                                    {Way::kUnlikelyIsDropped, "unlikely drafts are dropped"},
                                                    {Way::kBonusOfRowBefore, "the bonus token's row"}}};

// Counts of n tokens that have p's law where the way is right. Of kBonusOfRowBefore the row before has q's law.
inline std::vector<int64_t> counts_of(Way way, std::span<const double> p, std::span<const double> q, int64_t n,
                                      uint64_t seed) {
  std::vector<double> weights(p.size());
  for (size_t x = 0; x < p.size(); ++x)
    weights[x] = way == Way::kNotClamped ? std::abs(p[x] - q[x]) : std::max(0.0, p[x] - q[x]);
  const double unlikely = *std::ranges::max_element(q) / 4;
  const Alias from_p(p), from_q(q), from_residual(weights);
  std::mt19937_64 random(seed);
  std::vector<int64_t> out(p.size());
  const auto token = [&] {
    const size_t draft = from_q.draw(random);
    if (way == Way::kBonusOfRowBefore) return draft;
    if (way == Way::kUnlikelyIsDropped && q[draft] < unlikely) return from_p.draw(random);
    const double u = Alias::unit(random);
    bool is_taken = u * q[draft] < p[draft];
    if (way == Way::kInverted) is_taken = u * p[draft] < q[draft];
    if (way == Way::kEveryDraft) is_taken = p[draft] > 0;
    if (way == Way::kQIsOne) is_taken = u < p[draft];
    if (way == Way::kAgreement) is_taken = from_p.draw(random) == draft;
    if (is_taken) return draft;
    if (way == Way::kForgetsQ) return from_p.draw(random);
    if (way != Way::kOwnQAlone) return from_residual.draw(random);
    for (;;) {
      const size_t other = from_p.draw(random);
      if (other != draft) return other;  // refused, so that q has more of it than p
    }
  };
  for (int64_t i = 0; i < n; ++i) ++out[token()];
  return out;
}

}  // namespace ibid::testing
