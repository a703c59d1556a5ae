#include "engine/state/step_cost.h"

#include <algorithm>
#include <cmath>

namespace ibid {
namespace {

// What each part costs beside a prompt token, where nothing is known: a step as much as a few tokens, an attention that
// reads some hundred positions as much as a token's products. Dense models on CPUs were measured near it, and it is
// gone after some ten steps.
constexpr double kStep = 4, kReadByPrompt = 1.0 / 1500, kReadByDecode = 1.0 / 500, kRow = 0.5, kNewPosition = 0.1;
constexpr double kState = 0.5;            // some hundred KiB, read and written once a step
constexpr double kEstimateWeight = 0.01;  // in steps
constexpr double kRemembered = 0.98;      // of what is known, a step: some fifty steps are remembered
constexpr int kSweeps = 12;
constexpr size_t kDecodeReads = 4, kDraftReads = 5;
// As long as nothing is known of what drafts read, of a decode's reading; and what is known, in weights of the
// estimate.
constexpr double kSharedRead = 0.1, kEnoughSeen = 4;
constexpr int64_t kUncounted = 16;  // steps of a process whose errors are not counted: pages of weights come in
constexpr int64_t kEachErrors = 16;

}  // namespace

double distinct_experts(const CostTerms& terms, int64_t n_tokens) {
  if (terms.n_experts == 0) return 0;
  const double n = terms.n_experts, missed = 1 - terms.n_experts_used / n;
  return n * (1 - std::pow(missed, static_cast<double>(n_tokens)));
}

// Weights are read once a step whether dense or of experts; of experts those that are touched, so that one costs its
// part of what the weights of a token cost.
StepCost::StepCost(const CostTerms& terms)
    : terms_(terms),
      estimate_{kStep,
                1,
                1,
                kReadByPrompt * terms.kv_bytes,
                kReadByDecode * terms.kv_bytes,
                kReadByPrompt * terms.kv_bytes,
                kRow,
                kNewPosition,
                kState,
                kStep / std::max(1, terms.n_experts_used)} {}

StepCost::Parts StepCost::parts_of(const StepLoad& w) const {
  const double n[] = {1,
                      static_cast<double>(w.n_prompt_tokens),
                      static_cast<double>(w.n_decode_tokens),
                      static_cast<double>(w.prompt_reads),
                      static_cast<double>(w.decode_reads),
                      static_cast<double>(w.draft_reads),
                      static_cast<double>(w.n_rows),
                      static_cast<double>(w.n_new_positions),
                      terms_.has_state ? static_cast<double>(w.n_sequences) : 0,
                      distinct_experts(terms_, int64_t{w.n_prompt_tokens} + w.n_decode_tokens)};
  Parts parts;
  for (size_t i = 0; i < kParts; ++i) parts[i] = n[i] * estimate_[i];
  return parts;
}

size_t StepCost::kind_of(const StepLoad& w) { return w.n_prompt_tokens == 0 ? 0 : w.n_decode_tokens == 0 ? 1 : 2; }

double StepCost::without_factor(const Parts& parts) const {
  double sum = 0;
  for (size_t i = 0; i < kParts; ++i) sum += parts[i] * costs_[i];
  return sum;
}

double StepCost::seconds(const StepLoad& load) const { return factor_ * without_factor(parts_of(load)); }

double StepCost::of_drafts(const StepLoad& without, const StepLoad& with) const {
  const double more = seconds(with) - seconds(without);
  if (knows_draft_reads_) return more;
  const double each = estimate_[kDraftReads] * costs_[kDraftReads];
  const double shared = kSharedRead * estimate_[kDecodeReads] * costs_[kDecodeReads];
  return more - factor_ * std::max(0.0, each - shared) * static_cast<double>(with.draft_reads - without.draft_reads);
}

int32_t StepCost::n_within(double limit, const StepLoad& load, int32_t n_before, int32_t n_tokens, int32_t n_rowless,
                           bool is_new) const {
  int32_t fits = 0, too_many = n_tokens + 1;
  while (too_many - fits > 1) {
    const int32_t n = fits + (too_many - fits) / 2;
    StepLoad with = load;
    with.add_prompt(n_before, n, std::max(0, n - n_rowless));
    if (is_new) with.n_new_positions += n;
    (seconds(with) <= limit ? fits : too_many) = n;
  }
  return fits;
}

double StepCost::prompt_token() const {
  StepLoad prompt, decode;
  prompt.n_prompt_tokens = 1;
  decode.n_decode_tokens = decode.n_rows = 1;
  const double step = seconds({});
  const double of_decode = seconds(decode) - step;
  return of_decode <= 0 ? 1 : std::clamp((seconds(prompt) - step) / of_decode, 1.0 / 8, 8.0);
}

void StepCost::observe(const StepLoad& load, double taken) {
  if (taken <= 0 || load.empty()) return;
  const Parts parts = parts_of(load);
  const double expected = without_factor(parts);
  if (is_known()) {
    note_error(std::abs(factor_ * expected - taken) / taken);
    last_factors_[static_cast<size_t>(n_seen_) % last_factors_.size()] = taken / std::max(expected, 1e-9);
    auto sorted = last_factors_;
    std::ranges::sort(sorted);
    factor_ = std::clamp(sorted[1], 0.1, 10.0);
  }
  // Long steps count by their own length, so that one that stalled pulls at nothing.
  const double scale = std::max(taken, expected);
  const double weight = 1 / (scale * scale);
  Seen& seen = seen_[kind_of(load)];
  for (size_t i = 0; i < kParts; ++i) {
    for (size_t j = 0; j < kParts; ++j)
      seen.products[i][j] = kRemembered * seen.products[i][j] + weight * parts[i] * parts[j];
    seen.values[i] = kRemembered * seen.values[i] + weight * parts[i] * taken;
  }
  ++n_seen_;
  fit();
}

void StepCost::fit() {
  Seen all;
  double products = 0, values = 0;
  for (const Seen& seen : seen_) {
    for (size_t i = 0; i < kParts; ++i) {
      for (size_t j = 0; j < kParts; ++j) products += seen.products[i][j], all.products[i][j] += seen.products[i][j];
      values += seen.values[i], all.values[i] += seen.values[i];
    }
  }
  const double unit = values / products;  // what one would be, were the estimate right
  if (n_seen_ == 1) costs_.fill(unit);
  for (size_t i = 0; i < kParts; ++i) {
    if (i == kDraftReads) knows_draft_reads_ = all.products[i][i] > kEnoughSeen * kEstimateWeight / (unit * unit);
    all.products[i][i] += kEstimateWeight / (unit * unit);
    all.values[i] += kEstimateWeight / unit;
  }
  for (int sweep = 0; sweep < kSweeps; ++sweep) {
    for (size_t i = 0; i < kParts; ++i) {
      double rest = all.values[i];
      for (size_t j = 0; j < kParts; ++j) rest -= all.products[i][j] * costs_[j];
      costs_[i] += rest / all.products[i][i];
      costs_[i] = std::max(0.0, costs_[i]);
    }
  }
}

void StepCost::note_error(double error) {
  if (n_seen_ < kUncounted) return;
  errors_[static_cast<size_t>(n_errors_++) % kWindow] = static_cast<float>(error);
  if (n_errors_ % kEachErrors != 0) return;
  std::array<float, kWindow> sorted = errors_;
  const auto n = static_cast<size_t>(std::min<int64_t>(n_errors_, kWindow));
  const auto at = [&](size_t i) {
    std::nth_element(sorted.begin(), sorted.begin() + static_cast<std::ptrdiff_t>(i),
                     sorted.begin() + static_cast<std::ptrdiff_t>(n));
    return sorted[i];
  };
  error_p50_ = at(n / 2);
  error_p95_ = at(n * 95 / 100);
}

}  // namespace ibid
