#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/math.h"
#include "kernels/noise.h"
#include "sample/philox.h"
#include "sample/row_functions.h"
#include "sample/stages.h"

namespace ibid::stages {
namespace {

constexpr double kNatsPerBit = 0.693147180559945309417;

bool before(const Candidate& a, const Candidate& b) { return a.logit != b.logit ? a.logit > b.logit : a.id < b.id; }

}  // namespace

bool Support::collect(std::span<const float> logits, SamplerScratch& scratch) {
  candidates_ = &scratch.candidates;
  candidates_->clear();
  n_sorted_ = 0;
  total_ = -1;
  max_ = row_max(logits);
  if (!(max_ > -std::numeric_limits<float>::infinity())) return false;
  scratch.log_probs.resize(logits.size());
  float max = max_;
  for (size_t i = 0; i < logits.size(); ++i) scratch.log_probs[i] = logits[i] - max;
  row_exp(scratch.log_probs, scratch.log_probs);
  candidates_->reserve(logits.size());
  for (size_t i = 0; i < logits.size(); ++i) {
    if (logits[i] > -std::numeric_limits<float>::infinity()) {
      candidates_->push_back({logits[i], scratch.log_probs[i], static_cast<int32_t>(i)});
    }
  }
  return true;
}

std::span<const Candidate> Support::sorted(int32_t n) {
  if (n > n_sorted_) {
    // A prefix of twice what was asked, so that a stage that feels its way costs O(V) in all.
    constexpr int32_t kFirst = 256;
    int32_t m = std::min(size(), std::max(2 * n, kFirst));
    auto begin = candidates_->begin();
    if (m < size()) std::nth_element(begin + n_sorted_, begin + m, candidates_->end(), before);
    std::sort(begin + n_sorted_, begin + m, before);
    n_sorted_ = m;
  }
  return std::span<const Candidate>(*candidates_).first(static_cast<size_t>(n));
}

void Support::keep_first(int32_t n) {
  if (n >= size()) return;
  sorted(n);
  candidates_->resize(static_cast<size_t>(n));
  n_sorted_ = std::min(n_sorted_, n);
  total_ = -1;
}

void Support::keep_if(std::span<const uint8_t> keep) {
  size_t kept = 0;
  for (size_t i = 0; i < candidates_->size(); ++i) {
    if (keep[i]) (*candidates_)[kept++] = (*candidates_)[i];
  }
  if (kept == candidates_->size()) return;
  CHECK(kept > 0);
  candidates_->resize(kept);
  n_sorted_ = size();
  total_ = -1;
}

double Support::total_weight() {
  if (total_ < 0) {
    // Before the first sort the candidates lie in order of ids; after a cut the whole order is fixed by sorting.
    if (n_sorted_ > 0) sorted(size());
    total_ = 0;
    for (const Candidate& c : *candidates_) total_ += weight(c);
  }
  return total_;
}

void top_n_sigma(Support& support, float n) {
  double sum = 0;
  for (const Candidate& c : support.all()) sum += static_cast<double>(c.logit);
  double mean = sum / support.size();
  double squares = 0;
  for (const Candidate& c : support.all()) {
    double d = static_cast<double>(c.logit) - mean;
    squares += d * d;
  }
  double lowest =
      static_cast<double>(support.max_logit()) - static_cast<double>(n) * std::sqrt(squares / support.size());
  support.keep_while([&](const Candidate& c) { return static_cast<double>(c.logit) >= lowest; });
}

void top_k(Support& support, int32_t k) { support.keep_first(k); }

void top_p(Support& support, float p) {
  if (p >= 1.0f) return;
  double wanted = static_cast<double>(p) * support.total_weight();
  double sum = 0;
  int32_t n = 0;
  support.keep_while([&](const Candidate& c) {
    if (n > 0 && sum >= wanted) return false;
    sum += support.weight(c);
    ++n;
    return true;
  });
}

void min_p(Support& support, float p) {
  support.keep_while([&](const Candidate& c) { return support.weight(c) >= static_cast<double>(p); });
}

void typical(Support& support, float p, SamplerScratch& scratch) {
  if (p >= 1.0f) return;
  double total = support.total_weight();
  std::span<const Candidate> sorted = support.sorted(support.size());
  double log_total = math::log(total);
  auto surprise = [&](const Candidate& c) { return log_total - static_cast<double>(c.logit - support.max_logit()); };
  double entropy = 0;
  for (const Candidate& c : sorted) entropy += support.weight(c) / total * surprise(c);
  scratch.distances.resize(sorted.size());
  std::vector<int32_t> order(sorted.size());
  for (size_t i = 0; i < sorted.size(); ++i) {
    scratch.distances[i] = std::fabs(surprise(sorted[i]) - entropy);
    order[i] = static_cast<int32_t>(i);
  }
  std::sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    double x = scratch.distances[static_cast<size_t>(a)], y = scratch.distances[static_cast<size_t>(b)];
    return x != y ? x < y : a < b;
  });
  std::vector<uint8_t> keep(sorted.size(), 0);
  double sum = 0, wanted = static_cast<double>(p) * total;
  for (size_t i = 0; i < order.size() && (i == 0 || sum < wanted); ++i) {
    auto at = static_cast<size_t>(order[i]);
    keep[at] = 1;
    sum += support.weight(sorted[at]);
  }
  support.keep_if(keep);
}

void xtc(Support& support, float probability, float threshold, uint64_t seed, int32_t position) {
  double v = open_unit(noise_words(seed, position, NoisePurpose::kXtc, 0)[0]);
  if (v >= static_cast<double>(probability)) return;
  double wanted = static_cast<double>(threshold) * support.total_weight();
  int32_t n_top = 0;
  while (n_top < support.size() && support.weight(support.sorted(n_top + 1).back()) >= wanted) ++n_top;
  if (n_top < 2) return;
  support.sorted(support.size());
  std::vector<uint8_t> keep(static_cast<size_t>(support.size()), 1);
  std::fill_n(keep.begin(), n_top - 1, 0);
  support.keep_if(keep);
}

void mirostat1(Support& support, float mu, int32_t vocab_size) {
  constexpr int32_t kFitted = 100;
  if (support.size() < 2 || vocab_size < 2) return;
  // Least squares of b_i = ln(p_i / p_i+1) over t_i = ln((i + 2) / (i + 1)); of probabilities only the logits matter.
  std::span<const Candidate> top = support.sorted(std::min(support.size(), kFitted));
  double sum_tb = 0, sum_tt = 0;
  for (size_t i = 0; i + 1 < top.size(); ++i) {
    double t = math::log(static_cast<double>(i + 2) / static_cast<double>(i + 1));
    sum_tb += t * (static_cast<double>(top[i].logit) - static_cast<double>(top[i + 1].logit));
    sum_tt += t * t;
  }
  double s = sum_tb / sum_tt;
  // k = (e 2^mu / (1 - V^-e))^(1 / s), e = s - 1, in logarithms; with y = e ln V, e / (1 - V^-e) is y / (1 - exp(-y)) /
  // ln V.
  double log_v = math::log(static_cast<double>(vocab_size)), y = (s - 1) * log_v;
  double ratio = std::fabs(y) < 1e-4 ? 1 + y / 2 + y * y / 12 : y / (1 - math::exp(-y));
  double log_k = (math::log(ratio / log_v) + static_cast<double>(mu) * kNatsPerBit) / s;
  // Where all are equally likely, s is 0 and k is its limit: none or all.
  if (!(log_k < math::log(static_cast<double>(support.size())))) return;
  support.keep_first(std::max(1, static_cast<int32_t>(math::exp(log_k))));
}

void mirostat2(Support& support, float mu) {
  double total = support.total_weight();
  double lowest = total * math::exp(-static_cast<double>(mu) * kNatsPerBit);
  int32_t n = 0;
  support.keep_while([&](const Candidate& c) { return n++ == 0 || support.weight(c) >= lowest; });
}

float mirostat_update(float mu, float surprise, float tau, float eta) { return mu - eta * (surprise - tau); }

namespace {

// The race's state: who leads, and above which word nobody can overtake.
struct Race {
  double best = std::numeric_limits<double>::infinity();
  uint32_t limit = ~0u;
  int32_t winner = -1;

  // time = E / weight >= v / weight >= v, so most tokens lose without a logarithm or an exponential.
  void enter(const Candidate& c, uint32_t word) {
    if (word > limit) return;
    constexpr double kMargin = 1.0 + 1e-12;  // covers rounding
    const double v = open_unit(word), w = Support::weight(c);
    if (v > best * w * kMargin) return;
    const double time = -math::log1p(-v) / w;
    if (time > best || (time == best && winner >= 0 && c.id > winner)) return;
    best = time;
    winner = c.id;
    limit = static_cast<uint32_t>(std::min(best * kMargin * 0x1p32, 4294967295.0));
  }
};

}  // namespace

TokenId draw(const Support& support, uint64_t seed, int32_t position, SamplerScratch& scratch) {
  const std::span<const Candidate> all = support.all();
  Race race;
  // A narrow support takes the words of its own groups, a wide one those of the whole vocabulary at once.
  constexpr size_t kWide = 1024;
  if (all.size() < kWide) {
    for (const Candidate& c : all) {
      auto id = static_cast<uint32_t>(c.id);
      race.enter(c, noise_words(seed, position, NoisePurpose::kDraw, id / 4)[id % 4]);
    }
    return TokenId{race.winner};
  }
  int32_t highest = all.back().id;
  if (!support.is_every_token()) {
    for (const Candidate& c : all) highest = std::max(highest, c.id);
  }
  scratch.noise.resize(static_cast<size_t>(highest / 4 + 1) * 4);
  fill_noise(scratch.noise, seed, position, static_cast<uint32_t>(NoisePurpose::kDraw));
  if (!support.is_every_token()) {
    for (const Candidate& c : all) race.enter(c, scratch.noise[static_cast<size_t>(c.id)]);
    return TokenId{race.winner};
  }
  // Candidate i is token i: whole runs lose at a glance at their words.
  constexpr size_t kRun = 16;
  size_t i = 0;
  for (; i + kRun <= all.size(); i += kRun) {
    const uint32_t* words = scratch.noise.data() + i;
    uint32_t n_near = 0;
    for (size_t j = 0; j < kRun; ++j) n_near += words[j] <= race.limit;
    if (n_near == 0) continue;
    for (size_t j = 0; j < kRun; ++j) race.enter(all[i + j], words[j]);
  }
  for (; i < all.size(); ++i) race.enter(all[i], scratch.noise[i]);
  return TokenId{race.winner};
}

}  // namespace ibid::stages
