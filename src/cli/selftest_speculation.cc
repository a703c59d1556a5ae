#include "cli/selftest_speculation.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "base/ids.h"
#include "spec/drawn/rejection.h"

namespace ibid::cli {
namespace {

constexpr int32_t kVocab = 16;
constexpr int64_t kDrafts = 100'000;

struct Tried {
  double alpha = 0;     // of the laws
  double accepted = 0;  // part of the drafts
  double distance = 0;  // total variation
};

// Two laws of different slopes, both over all tokens.
Tried tried() {
  std::vector<Candidate> p, q;
  double of_p = 0, of_q = 0;
  for (int32_t id = 0; id < kVocab; ++id) {
    p.push_back({.weight = static_cast<float>(1 + id % 5), .id = id});
    q.push_back({.weight = static_cast<float>(1 + id * id % 11), .id = id});
    of_p += static_cast<double>(p.back().weight), of_q += static_cast<double>(q.back().weight);
  }
  std::vector<int64_t> counts(kVocab);
  std::vector<float> drawn_from(kVocab);
  std::vector<double> law;
  int64_t n_accepted = 0;
  for (int64_t i = 0; i < kDrafts; ++i) {
    const auto seed = static_cast<uint64_t>(i);
    const TokenId draft = ProposeRule(drawn_from).draw(q, of_q, seed, 3);
    const Sibling offered{draft, drawn_from};
    const TokenId token = VerifyRule({&offered, 1}, law).draw(p, of_p, seed, 3);
    n_accepted += token == draft;
    ++counts[static_cast<size_t>(raw(token))];
  }
  Tried out{.accepted = static_cast<double>(n_accepted) / kDrafts};
  for (size_t id = 0; id < kVocab; ++id) {
    const double of_token = static_cast<double>(p[id].weight) / of_p;
    out.alpha += std::min(of_token, static_cast<double>(q[id].weight) / of_q);
    out.distance += std::abs(static_cast<double>(counts[id]) / kDrafts - of_token) / 2;
  }
  return out;
}

}  // namespace

bool accepts_as_often_as_laws_overlap() {
  const Tried t = tried();
  return std::abs(t.accepted - t.alpha) < 0.01 * t.alpha;
}

bool draws_the_targets_law() { return tried().distance < 0.01; }

}  // namespace ibid::cli
