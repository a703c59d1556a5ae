#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "kernels/math.h"
#include "kernels/noise.h"
#include "kernels/row_math.h"
#include "sample/philox.h"
#include "sample/row_functions.h"
#include "sample/sort_candidates.h"
#include "sample/stages.h"

namespace ibid::stages {
namespace {

constexpr double kNatsPerBit = 0.693147180559945309417;

}  // namespace

bool Support::collect(std::span<const float> logits, SamplerScratch& scratch) {
  candidates_ = &scratch.candidates;
  scratch_ = &scratch;
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

// Puts the n highest in front and leaves the others in the order of ids, which all have before the first sort: to sort
// those is cheaper then. n < size().
void Support::bring_forward(int32_t n) {
  std::vector<float>& logits = scratch_->log_probs;  // free after collect()
  logits.clear();
  for (const Candidate& c : *candidates_) logits.push_back(c.logit);
  const auto nth = logits.begin() + n - 1;
  std::nth_element(logits.begin(), nth, logits.end(), std::greater<>());
  const float lowest = *nth;
  // Of those that have the lowest logit that still goes forward, the higher ids stay back.
  auto n_kept_back = std::count(nth + 1, logits.end(), lowest);
  std::vector<Candidate>& forward = scratch_->spare;
  forward.resize(std::max(forward.size(), static_cast<size_t>(n)));
  size_t to = candidates_->size(), n_left = static_cast<size_t>(n);
  for (size_t from = to; from-- > 0;) {
    const Candidate c = (*candidates_)[from];
    if (c.logit > lowest || (c.logit == lowest && n_kept_back-- <= 0)) {
      forward[--n_left] = c;
    } else {
      (*candidates_)[--to] = c;
    }
  }
  std::copy_n(forward.begin(), n, candidates_->begin());
}

std::span<const Candidate> Support::sorted(int32_t n) {
  if (n > n_sorted_) {
    // Most stages look at a few. Who wants more than was got ready for them gets all: growing step by step would look
    // at the rest each time.
    constexpr int32_t kFirst = 256;
    const bool is_deep = n_sorted_ > 0 || n > size() / 16;
    const int32_t m = is_deep ? size() : std::min(size(), std::max(2 * n, kFirst));
    if (m < size()) bring_forward(m);
    sort_candidates(std::span(*candidates_).subspan(static_cast<size_t>(n_sorted_), static_cast<size_t>(m - n_sorted_)),
                    scratch_->spare);
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

void Support::drop_first(int32_t n) {
  CHECK(n < size());
  sorted(size());
  candidates_->erase(candidates_->begin(), candidates_->begin() + n);
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
  const double total = support.total_weight();
  const std::span<const Candidate> sorted = support.sorted(support.size());
  const double log_total = math::log(total);
  const auto surprise = [&](const Candidate& c) {
    return log_total - static_cast<double>(c.logit - support.max_logit());
  };
  double entropy = 0;
  for (const Candidate& c : sorted) {
    if (c.weight > 0) entropy += support.weight(c) / total * surprise(c);  // 0 log 0 is 0
  }
  // Surprise rises along the sorted order. So those nearest to the entropy lie around one place, and the next nearest
  // is always at one of the two edges; of equals, the lower index goes first.
  const auto middle =
      std::partition_point(sorted.begin(), sorted.end(), [&](const Candidate& c) { return surprise(c) - entropy < 0; });
  auto left = static_cast<size_t>(middle - sorted.begin()), right = left;  // [left, right) are taken
  const auto distance = [&](size_t i) { return std::fabs(surprise(sorted[i]) - entropy); };
  scratch.keep.assign(sorted.size(), 0);
  double sum = 0;
  const double wanted = static_cast<double>(p) * total;
  const auto take = [&](size_t i) {
    scratch.keep[i] = 1;
    sum += support.weight(sorted[i]);
  };
  do {
    if (left > 0 && (right == sorted.size() || distance(left - 1) <= distance(right))) {
      const size_t end = left;
      const double nearest = distance(left - 1);
      while (left > 0 && distance(left - 1) == nearest) --left;
      take(left);
      for (size_t i = left + 1; i < end && sum < wanted; ++i) take(i);
    } else {
      take(right++);
    }
  } while (sum < wanted && right - left < sorted.size());
  support.keep_if(scratch.keep);
}

void xtc(Support& support, float probability, float threshold, uint64_t seed, int32_t position) {
  double v = open_unit(noise_words(seed, position, NoisePurpose::kXtc, 0)[0]);
  if (v >= static_cast<double>(probability)) return;
  double wanted = static_cast<double>(threshold) * support.total_weight();
  const int32_t n_top = support.count_while([&](const Candidate& c) { return support.weight(c) >= wanted; });
  if (n_top >= 2) support.drop_first(n_top - 1);
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
