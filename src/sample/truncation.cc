#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "kernels/math.h"
#include "kernels/noise.h"
#include "kernels/row_math.h"
#include "sample/philox.h"
#include "sample/sort_candidates.h"
#include "sample/stages.h"

namespace ibid::stages {
namespace {

constexpr double kNatsPerBit = 0.693147180559945309417;

}  // namespace

bool Support::collect(std::span<const float> logits, const RowLook& look, SamplerScratch& scratch) {
  row_ = logits;
  scratch_ = &scratch;
  candidates_ = &scratch.candidates;
  candidates_->clear();
  is_whole_ = true;
  n_possible_ = static_cast<int32_t>(look.n_possible);
  n_sorted_ = 0;
  total_ = -1;
  max_ = look.most;
  if (n_possible_ == 0) return false;
  scratch.weights.resize(logits.size());
  row_exp_below(scratch.weights, logits, max_);
  return true;
}

bool Support::collect(std::span<const float> logits, SamplerScratch& scratch) {
  return collect(logits, row_look(logits), scratch);
}

// All that are possible, in the order of ids.
void Support::list() {
  candidates_->clear();
  candidates_->reserve(static_cast<size_t>(n_possible_));
  for (size_t i = 0; i < row_.size(); ++i) {
    if (row_[i] > -std::numeric_limits<float>::infinity())
      candidates_->push_back({row_[i], scratch_->weights[i], static_cast<int32_t>(i)});
  }
}

std::span<const Candidate> Support::all() {
  if (is_whole_ && n_sorted_ > 0) sorted(size());
  if (is_whole_) list();
  return *candidates_;
}

std::span<const Candidate> Support::sorted(int32_t n) {
  if (n > n_sorted_) {
    CHECK(is_whole_);  // what has been cut is sorted
    // Most stages read a few tokens, some a few hundred. A stage that needs more than were sorted gets all: growing
    // step by step would read the rest each time.
    constexpr int32_t kFirst = 256, kSecond = 4096;
    const int32_t most = std::max(2 * n, n_sorted_ == 0 ? kFirst : kSecond);
    const bool is_deep = n_sorted_ > kFirst || n > size() / 16 || most >= size();
    if (is_deep) {
      list();
      sort_candidates(*candidates_, scratch_->spare);
      is_whole_ = false;
    } else {
      keep_best(row_, static_cast<size_t>(most), *scratch_);
      candidates_->assign(scratch_->best.begin(), scratch_->best.end());
      for (Candidate& c : *candidates_) c.weight = scratch_->weights[static_cast<size_t>(c.id)];
    }
    n_sorted_ = static_cast<int32_t>(candidates_->size());
  }
  return std::span<const Candidate>(*candidates_).first(static_cast<size_t>(n));
}

// Keeps the sorted ones that `candidates_` now holds.
void Support::was_cut() {
  is_whole_ = false;
  n_sorted_ = static_cast<int32_t>(candidates_->size());
  total_ = -1;
}

int32_t Support::count_above(double lowest) const {
  if (!is_whole_) {
    return static_cast<int32_t>(
        std::ranges::count_if(*candidates_, [&](const Candidate& c) { return weight(c) >= lowest; }));
  }
  if (lowest <= 0) return n_possible_;
  if (lowest > 1) return 0;
  auto least = static_cast<float>(lowest);  // of floats: the first that is not below it
  if (static_cast<double>(least) < lowest) least = std::nextafter(least, std::numeric_limits<float>::infinity());
  int32_t n = 0;
  for (const float w : scratch_->weights) n += w >= least ? 1 : 0;
  return n;
}

void Support::keep_first(int32_t n) {
  if (n >= size()) return;
  sorted(n);
  candidates_->resize(static_cast<size_t>(n));
  was_cut();
}

void Support::keep_if(std::span<const uint8_t> keep) {
  sorted(size());
  size_t kept = 0;
  for (size_t i = 0; i < candidates_->size(); ++i) {
    if (keep[i]) (*candidates_)[kept++] = (*candidates_)[i];
  }
  if (kept == candidates_->size()) return;
  CHECK(kept > 0);
  candidates_->resize(kept);
  was_cut();
}

void Support::drop_first(int32_t n) {
  CHECK(n < size());
  sorted(size());
  candidates_->erase(candidates_->begin(), candidates_->begin() + n);
  was_cut();
}

double Support::total_weight() {
  if (total_ >= 0) return total_;
  if (n_sorted_ > 0) sorted(size());
  total_ = 0;
  if (is_whole_) {
    for (const float w : scratch_->weights) total_ += static_cast<double>(w);  // 0 where nothing is possible
  } else {
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
  // Impossible tokens are cut at a threshold of 0 too: alone they would be a support without weight.
  const int32_t n_top =
      support.count_while([&](const Candidate& c) { return c.weight > 0 && support.weight(c) >= wanted; });
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
  // Where the rows surprise less than the target, mu rises until nothing is cut.
  const int32_t n_kept = support.count_above(lowest);
  if (n_kept == support.size()) return;
  if (n_kept > 0) support.sorted(n_kept);
  int32_t n = 0;
  support.keep_while([&](const Candidate& c) { return n++ == 0 || support.weight(c) >= lowest; });
}

float mirostat_update(float mu, float surprise, float tau, float eta) { return mu - eta * (surprise - tau); }

namespace {

// The race's state: the leading token, and the word above which no other can win.
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

namespace {

// Over all tokens: most lose sixty-four at a time.
int32_t draw_whole(std::span<const float> weights, uint64_t seed, int32_t position, SamplerScratch& scratch) {
  scratch.noise.resize((weights.size() + 3) / 4 * 4);
  fill_noise(scratch.noise, seed, position, static_cast<uint32_t>(NoisePurpose::kDraw));
  Race race;
  const auto n = weights.size();
  for (size_t i = 0; i < n;) {
    i = next_block_near(scratch.noise, weights, i, race.best);
    for (const size_t end = std::min(n, i + kLookBlock); i < end; ++i) {
      if (weights[i] > 0) race.enter({.weight = weights[i], .id = static_cast<int32_t>(i)}, scratch.noise[i]);
    }
  }
  return race.winner;
}

}  // namespace

TokenId draw(Support& support, uint64_t seed, int32_t position, SamplerScratch& scratch) {
  if (support.is_whole()) return TokenId{draw_whole(support.weights(), seed, position, scratch)};
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
  const int32_t highest = std::ranges::max(all, {}, &Candidate::id).id;
  scratch.noise.resize(static_cast<size_t>(highest / 4 + 1) * 4);
  fill_noise(scratch.noise, seed, position, static_cast<uint32_t>(NoisePurpose::kDraw));
  for (const Candidate& c : all) race.enter(c, scratch.noise[static_cast<size_t>(c.id)]);
  return TokenId{race.winner};
}

}  // namespace ibid::stages
