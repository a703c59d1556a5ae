#include "spec/drawn/rejection.h"

#include <algorithm>
#include <limits>

#include "base/check.h"
#include "kernels/math.h"
#include "sample/philox.h"

namespace ibid {
namespace {

// The race of docs/design.md section 5, law 4, over weights of any kind: the least E / weight wins, ties to the lower
// id. The first n of it are n draws without replacement.
class WeightedRace {
 public:
  WeightedRace(uint64_t seed, int32_t position, NoisePurpose purpose, int32_t n = 1, uint32_t turn = 0)
      : seed_(seed), position_(position), purpose_(purpose), turn_(turn), n_(static_cast<size_t>(n)) {}
  void enter(int32_t id, double weight) {
    if (!(weight > 0)) return;
    const auto group = static_cast<uint32_t>(id) / 4;
    if (group != group_) words_ = noise_words(seed_, position_, purpose_, group_ = group, turn_);
    // E is no less than its word, so most candidates lose without a logarithm; the margin covers rounding.
    constexpr double kMargin = 1.0 + 1e-12;
    const double v = open_unit(words_[static_cast<size_t>(id) % 4]);
    if (n_in_ == n_ && v > first_[n_ - 1].time * weight * kMargin) return;
    const double time = -math::log1p(-v) / weight;
    const auto is_before = [&](const Runner& r) { return time < r.time || (time == r.time && id < r.id); };
    if (n_in_ == n_ && !is_before(first_[n_ - 1])) return;
    size_t at = std::min(n_in_, n_ - 1);
    for (; at > 0 && is_before(first_[at - 1]); --at) first_[at] = first_[at - 1];
    first_[at] = {time, id};
    n_in_ = std::min(n_in_ + 1, n_);
  }
  // If none has weight, the lowest id wins, as in the race of all tokens: a draw always returns a token of the support.
  template <typename WeightOf>
  void enter_all(std::span<const Candidate> support, const WeightOf& weight_of) {
    for (size_t i = 0; i < support.size(); ++i) enter(support[i].id, weight_of(i));
    if (n_in_ > 0) return;
    first_[n_in_++].id = std::ranges::min(support, {}, &Candidate::id).id;
  }
  int32_t n_in() const { return static_cast<int32_t>(n_in_); }
  TokenId winner(int32_t place = 0) const { return TokenId{first_[static_cast<size_t>(place)].id}; }

 private:
  struct Runner {
    double time = std::numeric_limits<double>::infinity();
    int32_t id = -1;
  };
  uint64_t seed_;
  int32_t position_;
  NoisePurpose purpose_;
  uint32_t turn_;
  size_t n_, n_in_ = 0;
  uint32_t group_ = std::numeric_limits<uint32_t>::max();
  std::array<uint32_t, 4> words_ = {};
  std::array<Runner, ProposeRule::kMost> first_;
};

auto weight_of(std::span<const Candidate> support) {
  return [support](size_t i) { return static_cast<double>(support[i].weight); };
}

using Formulas = Rejection<double>;

}  // namespace

// ---- proposals -----------------------------------------------------------------------------------------------------

TokenId ProposeRule::draw(std::span<const Candidate> support, double total_weight, uint64_t seed, int32_t position) {
  CHECK(n_wanted_ >= 1 && n_wanted_ <= kMost);
  std::ranges::fill(q_, 0.0F);
  for (const Candidate& c : support) {
    if (c.weight > 0) q_[static_cast<size_t>(c.id)] = static_cast<float>(static_cast<double>(c.weight) / total_weight);
  }
  n_drawn_ = 0;
  const int32_t n_races = is_distinct_ ? 1 : n_wanted_;
  for (int32_t turn = 0; turn < n_races; ++turn) {
    WeightedRace race(seed, position, NoisePurpose::kPropose, is_distinct_ ? n_wanted_ : 1,
                      static_cast<uint32_t>(turn));
    race.enter_all(support, weight_of(support));
    for (int32_t i = 0; i < race.n_in(); ++i) drawn_[static_cast<size_t>(n_drawn_++)] = race.winner(i);
  }
  return drawn_.front();
}

TokenId FirstOfRace::draw(std::span<const Candidate> support, double, uint64_t seed, int32_t position) {
  CHECK(n_wanted_ >= 1 && n_wanted_ <= ProposeRule::kMost);
  WeightedRace race(seed, position, NoisePurpose::kDraw, n_wanted_);
  race.enter_all(support, weight_of(support));
  n_drawn_ = race.n_in();
  for (int32_t i = 0; i < n_drawn_; ++i) drawn_[static_cast<size_t>(i)] = race.winner(i);
  return drawn_.front();
}

// ---- verification --------------------------------------------------------------------------------------------------

void list_siblings(const Drafts& drafts, int32_t parent, int32_t n, std::vector<Sibling>& out) {
  out.clear();
  for (int32_t i = parent + 1; i < n; ++i) {
    const auto at = static_cast<size_t>(i);
    if (drafts.parents[at] == parent)
      out.push_back({.token = drafts.tokens[at], .q = drafts.q[at], .is_distinct = drafts.is_distinct[at] != 0});
  }
}

// The mass of q that the siblings before this one leave; 1 if it was drawn independently of them.
double VerifyRule::rest(int32_t sibling) const {
  const auto at = static_cast<size_t>(sibling);
  const Sibling& s = siblings_[at];
  if (s.q.empty() || !s.is_distinct || at == 0) return 1;
  // Summed directly, not as the total minus the others: for a q concentrated on one token, the difference would be only
  // rounding error.
  std::vector<size_t> apart = {s.q.size()};
  for (const Sibling& before : siblings_.first(at)) apart.push_back(static_cast<size_t>(raw(before.token)));
  std::ranges::sort(apart);
  double sum = 0;
  for (size_t i = 0, next = 0; i < s.q.size(); ++i) {
    while (apart[next] < i) ++next;
    if (i != apart[next]) sum += static_cast<double>(s.q[i]);
  }
  return sum;
}

double VerifyRule::proposed(int32_t sibling, TokenId token, double rest) const {
  const auto at = static_cast<size_t>(sibling);
  const Sibling& s = siblings_[at];
  if (s.q.empty()) return token == s.token ? 1 : 0;
  const auto q = static_cast<double>(s.q[static_cast<size_t>(raw(token))]);
  // p is 0 for the siblings before it, so their value is never read.
  return rest > 0 ? Formulas::without(q, rest) : q;
}

TokenId VerifyRule::draw(std::span<const Candidate> support, double total_weight, uint64_t seed, int32_t position) {
  p_.clear();
  for (const Candidate& c : support) p_.push_back(static_cast<double>(c.weight) / total_weight);
  double left = 1;  // remaining mass of the sibling's q
  const auto place = [&](int32_t c) {
    left = rest(c);
    const TokenId token = siblings_[static_cast<size_t>(c)].token;
    const auto it = std::ranges::find(support, raw(token), &Candidate::id);
    return it == support.end() ? -1 : static_cast<int32_t>(it - support.begin());
  };
  const auto q_of = [&](int32_t c, int32_t i) {
    return proposed(c, TokenId{support[static_cast<size_t>(i)].id}, left);
  };
  const auto takes = [&](int32_t c, double p, double q) {
    const double u = open_unit(noise_words(seed, position, NoisePurpose::kAccept, 0, static_cast<uint32_t>(c))[0]);
    return u * q < p;
  };
  const int32_t taken =
      try_siblings<Formulas>(std::span(p_), static_cast<int32_t>(siblings_.size()), place, q_of, takes);
  if (taken >= 0) return siblings_[static_cast<size_t>(taken)].token;
  // Noise that the proposal has used would reveal where q is large.
  WeightedRace race(seed, position, NoisePurpose::kResidual);
  race.enter_all(support, [&](size_t i) { return p_[i]; });
  return race.winner();
}

}  // namespace ibid
