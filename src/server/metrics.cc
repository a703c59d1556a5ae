#include "server/metrics.h"

#include <algorithm>
#include <charconv>

#include "base/json_writer.h"
#include "server/api_error.h"
#include "text/output/finish_reason.h"

namespace ibid {
namespace {

// From a small model on a GPU to a large one on a CPU.
constexpr double kLatency[] = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120};
constexpr double kTotal[] = {0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800};

constexpr FinishReason kReasons[] = {FinishReason::kEos,       FinishReason::kStop, FinishReason::kLength,
                                     FinishReason::kGrammar,   FinishReason::kTool, FinishReason::kSafety,
                                     FinishReason::kCancelled, FinishReason::kError};

void append_number(std::string& out, double value) { JsonWriter(out).number(value); }

void head(std::string& out, const char* name, const char* type, const char* help) {
  out += std::string("# HELP ibid_") + name + " " + help + "\n# TYPE ibid_" + name + " " + type + "\n";
}

void line(std::string& out, const std::string& name, double value) {
  out += "ibid_" + name + " ";
  append_number(out, value);
  out += '\n';
}

void single(std::string& out, const char* name, const char* type, const char* help, double value) {
  head(out, name, type, help);
  line(out, name, value);
}

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

void Histogram::append_text(std::string& out, const char* name, const char* help) const {
  head(out, name, "histogram", help);
  int64_t below = 0;
  for (size_t i = 0; i < bounds_.size(); ++i) {
    below += counts_[i];
    line(out, std::string(name) + "_bucket{le=\"" + bucket_name(bounds_[i]) + "\"}", static_cast<double>(below));
  }
  line(out, std::string(name) + "_bucket{le=\"+Inf\"}", static_cast<double>(count()));
  line(out, std::string(name) + "_sum", sum_);
  line(out, std::string(name) + "_count", static_cast<double>(count()));
}

Metrics::Metrics() : ttft_(kLatency), itl_(kGapBounds), e2e_(kTotal), queue_(kLatency), step_(kGapBounds) {}

void Metrics::add_response(std::string_view route, int status) {
  const std::lock_guard lock(mutex_);
  size_t r = kRouteNames.size() - 1;
  for (size_t i = 0; i < kRouteNames.size(); ++i) {
    if (route == kRouteNames[i]) r = i;
  }
  responses_[r][static_cast<size_t>(std::clamp(status / 100 - 1, 0, 4))]++;
  if (status < 400) return;
  for (size_t i = 0; i < kErrorNames.size(); ++i) {
    if (error_kind(status) == kErrorNames[i]) errors_[i]++;
  }
}

void Metrics::add_abort(Abort cause) {
  const std::lock_guard lock(mutex_);
  aborts_[static_cast<size_t>(cause)]++;
}

void Metrics::add_times(const RequestTimes& times) {
  const std::lock_guard lock(mutex_);
  e2e_.observe(times.total);
  if (!times.has_first_token) return;
  queue_.observe(times.queue);
  ttft_.observe(times.first_token);
}

void Metrics::add_gap(double seconds, int64_t n) {
  const std::lock_guard lock(mutex_);
  itl_.observe(seconds, n);
}

void Metrics::add_finish(std::string_view reason) {
  const std::lock_guard lock(mutex_);
  for (size_t i = 0; i < std::size(kReasons); ++i) {
    if (reason == finish_reason_name(kReasons[i])) finishes_[i]++;
  }
}

void Metrics::add_step(const EngineStats& stats) {
  const std::lock_guard lock(mutex_);
  if (stats.n_steps == last_step_) return;
  last_step_ = stats.n_steps;
  const double parts[] = {stats.step_plan, stats.step_forward, stats.step_sample, stats.step_settle};
  double total = 0;
  for (size_t i = 0; i < 4; ++i) {
    const double part = whole_microseconds(parts[i]);
    step_parts_[i] += part;
    total += part;
  }
  step_.observe(whole_microseconds(total));
  prefill_tokens_ += stats.step_prefill_tokens;
  decode_tokens_ += stats.step_decode_tokens;
}

void Metrics::add_tokens(int64_t prompt, int64_t cached, int64_t generated) {
  const std::lock_guard lock(mutex_);
  prompt_tokens_ += prompt;
  cached_tokens_ += cached;
  generated_tokens_ += generated;
}

void Metrics::add_connection_refused() {
  const std::lock_guard lock(mutex_);
  connections_refused_++;
}

void Metrics::add_log_line_lost() {
  const std::lock_guard lock(mutex_);
  log_lines_lost_++;
}

std::string Metrics::text(const EngineStats& stats, const ServerGauges& gauges) const {
  const std::lock_guard lock(mutex_);
  std::string out;
  ttft_.append_text(out, "time_to_first_token_seconds", "From a request's arrival to its first token.");
  itl_.append_text(out, "inter_token_latency_seconds", "Between two tokens of a choice.");
  e2e_.append_text(out, "request_seconds", "From a request's arrival to the end of its answer.");
  queue_.append_text(out, "queue_seconds", "From a request's arrival in the engine to its first step.");
  step_.append_text(out, "step_seconds", "Duration of a step.");
  head(out, "step_part_seconds_total", "counter", "Time spent in the parts of steps.");
  static constexpr const char* kParts[] = {"plan", "forward", "sample", "settle"};
  for (size_t i = 0; i < 4; ++i)
    line(out, std::string("step_part_seconds_total{part=\"") + kParts[i] + "\"}", step_parts_[i]);
  head(out, "step_tokens_total", "counter", "Tokens that steps computed, of prompts and of answers.");
  line(out, "step_tokens_total{kind=\"prefill\"}", static_cast<double>(prefill_tokens_));
  line(out, "step_tokens_total{kind=\"decode\"}", static_cast<double>(decode_tokens_));

  single(out, "steps_total", "counter", "Steps of the engine.", static_cast<double>(stats.n_steps));
  single(out, "prompt_tokens_total", "counter", "Tokens of prompts taken into the queue.",
         static_cast<double>(prompt_tokens_));
  single(out, "cached_tokens_total", "counter", "Tokens of prompts found in the prefix cache.",
         static_cast<double>(cached_tokens_));
  single(out, "generated_tokens_total", "counter", "Tokens generated for requests whose client was there.",
         static_cast<double>(generated_tokens_));
  single(out, "preemptions_total", "counter", "Sequences that had to give up their blocks and start again.",
         static_cast<double>(stats.n_preemptions));
  single(out, "sequences_running", "gauge", "Sequences in the engine's steps.", stats.n_running);
  single(out, "sequences_waiting", "gauge", "Sequences that wait for a place.", stats.n_waiting);
  head(out, "cache_blocks", "gauge",
       "Blocks of the KV cache by state; shared ones are in use by more than one sequence.");
  line(out, "cache_blocks{state=\"free\"}", stats.blocks_free);
  line(out, "cache_blocks{state=\"cached\"}", stats.blocks_cached);
  line(out, "cache_blocks{state=\"in_use\"}", stats.blocks_in_use);
  single(out, "cache_blocks_shared", "gauge", "Blocks in use by more than one sequence.", stats.blocks_shared);
  single(out, "cache_use_ratio", "gauge", "Blocks in use over all blocks.",
         stats.blocks_total > 0 ? static_cast<double>(stats.blocks_in_use) / stats.blocks_total : 0);

  head(out, "responses_total", "counter", "HTTP answers by route and class of status, as the log has it.");
  for (size_t r = 0; r < kRouteNames.size(); ++r) {
    for (size_t c = 1; c < 5; ++c) {
      line(out,
           std::string("responses_total{route=\"") + kRouteNames[r] + "\",status=\"" + std::to_string(c + 1) + "xx\"}",
           static_cast<double>(responses_[r][c]));
    }
  }
  head(out, "errors_total", "counter",
       "HTTP answers of 400 and above by kind; client_gone: the client did not wait for one.");
  for (size_t i = 0; i < kErrorNames.size(); ++i)
    line(out, std::string("errors_total{kind=\"") + kErrorNames[i] + "\"}", static_cast<double>(errors_[i]));
  head(out, "aborts_total", "counter", "Generations ended from our side of the socket, by cause.");
  for (size_t i = 0; i < kAbortNames.size(); ++i)
    line(out, std::string("aborts_total{cause=\"") + kAbortNames[i] + "\"}", static_cast<double>(aborts_[i]));
  head(out, "choices_finished_total", "counter", "Choices by the reason of their end.");
  for (size_t i = 0; i < std::size(kReasons); ++i) {
    line(out, std::string("choices_finished_total{reason=\"") + finish_reason_name(kReasons[i]) + "\"}",
         static_cast<double>(finishes_[i]));
  }
  single(out, "connections", "gauge", "Open connections.", static_cast<double>(gauges.connections));
  single(out, "connections_refused_total", "counter", "Connections closed because of a limit.",
         static_cast<double>(connections_refused_));
  single(out, "requests_active", "gauge", "Generations under way.", static_cast<double>(gauges.requests_active));
  single(out, "log_lines_lost_total", "counter", "Lines that the log could not take.",
         static_cast<double>(log_lines_lost_));
  single(out, "uptime_seconds", "gauge", "Since the server started.", gauges.uptime);
  single(out, "ready", "gauge", "1 where /health says ready.", gauges.ready ? 1 : 0);
  return out;
}

}  // namespace ibid
