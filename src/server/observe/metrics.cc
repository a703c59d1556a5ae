#include "server/observe/metrics.h"

#include <algorithm>
#include <charconv>

#include "server/observe/metric_table.h"
#include "server/wire/api_error.h"

namespace ibid {
namespace {

// From a small model on a GPU to a large one on a CPU.
constexpr double kLatency[] = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120};
constexpr double kTotal[] = {0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800};
constexpr double kTokens[] = {1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072};

}  // namespace

size_t bucket_of(std::span<const double> bounds, double value) {
  return static_cast<size_t>(std::lower_bound(bounds.begin(), bounds.end(), value) - bounds.begin());
}

std::string bucket_name(double bound) {
  char text[32];
  return {text, std::to_chars(text, text + sizeof text, bound, std::chars_format::fixed).ptr};
}

void Histogram::observe(double value, int64_t n) {
  counts_[bucket_of(bounds_, value)] += n;
  sum_ += value * static_cast<double>(n);
}

int64_t Histogram::count() const {
  int64_t n = 0;
  for (const int64_t c : counts_) n += c;
  return n;
}

MetricCounts::MetricCounts()
    : ttft(kLatency),
      itl(kItlBounds),
      e2e(kTotal),
      queue(kLatency),
      prefill(kLatency),
      decode(kTotal),
      step(kItlBounds),
      step_tokens(kTokens),
      prompt_len(kTokens),
      answer_len(kTokens) {}

std::span<const FinishReason> finish_reasons() {
  static constexpr FinishReason kReasons[] = {FinishReason::kEos,       FinishReason::kStop, FinishReason::kLength,
                                              FinishReason::kGrammar,   FinishReason::kTool, FinishReason::kSafety,
                                              FinishReason::kCancelled, FinishReason::kError};
  return kReasons;
}

void Metrics::add_response(std::string_view route, int status) {
  const std::lock_guard lock(mutex_);
  size_t r = kRouteNames.size() - 1;
  for (size_t i = 0; i < kRouteNames.size(); ++i) {
    if (route == kRouteNames[i]) r = i;
  }
  counts_.responses[r][static_cast<size_t>(std::clamp(status / 100 - 1, 0, 4))]++;
  if (status < 400) return;
  for (size_t i = 0; i < kErrorNames.size(); ++i) {
    if (error_kind(status) == kErrorNames[i]) counts_.errors[i]++;
  }
}

void Metrics::add_abort(Abort cause) {
  const std::lock_guard lock(mutex_);
  counts_.aborts[static_cast<size_t>(cause)]++;
}

void Metrics::add_request(const RequestTimes& times, int64_t prompt_tokens, int64_t answer_tokens) {
  const std::lock_guard lock(mutex_);
  counts_.e2e.observe(times.total);
  for (size_t i = 0; i < times.phases.size(); ++i) counts_.phases[i] += times.phases[i];
  counts_.prompt_len.observe(static_cast<double>(prompt_tokens));
  counts_.answer_len.observe(static_cast<double>(answer_tokens));
  counts_.longest = std::max(counts_.longest, prompt_tokens + answer_tokens);
  if (!times.has_first_token) return;
  counts_.queue.observe(times.queue);
  counts_.ttft.observe(times.first_token);
  counts_.prefill.observe(times.prefill);
  counts_.decode.observe(times.decode);
}

void Metrics::add_itl(double seconds, int64_t n) {
  const std::lock_guard lock(mutex_);
  counts_.itl.observe(seconds, n);
}

void Metrics::add_finish(std::string_view reason) {
  const std::lock_guard lock(mutex_);
  for (size_t i = 0; i < finish_reasons().size(); ++i) {
    if (reason == finish_reason_name(finish_reasons()[i])) counts_.finishes[i]++;
  }
}

void Metrics::add_step(const EngineStats& stats, const void* engine) {
  const std::lock_guard lock(mutex_);
  if (stats.n_steps == std::exchange(last_steps_[engine], stats.n_steps)) return;
  const double parts[] = {stats.step_plan, stats.step_forward, stats.step_sample, stats.step_settle};
  double total = 0;
  for (size_t i = 0; i < kStepPartNames.size(); ++i) {
    const double part = whole_microseconds(parts[i]);
    counts_.step_parts[i] += part;
    total += part;
  }
  counts_.step.observe(whole_microseconds(total));
  counts_.step_tokens.observe(stats.step_prefill_tokens + stats.step_decode_tokens);
  counts_.step_sequences += stats.step_sequences;
  counts_.prefill_tokens += stats.step_prefill_tokens;
  counts_.decode_tokens += stats.step_decode_tokens;
}

void Metrics::add_tokens(int64_t prompt, int64_t cached, int64_t generated) {
  const std::lock_guard lock(mutex_);
  counts_.prompt_tokens += prompt;
  counts_.cached_tokens += cached;
  counts_.generated_tokens += generated;
}

void Metrics::add_connection_refused() {
  const std::lock_guard lock(mutex_);
  counts_.connections_refused++;
}

void Metrics::add_log_line_lost() {
  const std::lock_guard lock(mutex_);
  counts_.log_lines_lost++;
}

std::string Metrics::text(const EngineStats& stats, const ServerGauges& gauges, MetricNames names,
                          std::string_view model) const {
  const std::lock_guard lock(mutex_);
  std::string out;
  append_metrics(out, {counts_, stats, gauges}, names, model);
  return out;
}

}  // namespace ibid
