// Metrics: counters and histograms of the server, and the text of /metrics (Prometheus exposition format 0.0.4), whose
// lines are those of metric_table.h. Labels come from fixed sets. Safe from any thread.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "engine/state/ledger.h"
#include "server/access/quotas.h"
#include "text/output/finish_reason.h"

namespace ibid {

// Seconds as histograms take them and the request log writes them: whole microseconds, so that a sum over the log puts
// each time into the bucket where the histogram has it.
inline double whole_microseconds(double seconds) { return std::round(seconds * 1e6) / 1e6; }

// Upper bounds of the buckets for the time between two tokens.
inline constexpr std::array kItlBounds = {0.0005, 0.001, 0.0025, 0.005, 0.0075, 0.01, 0.015, 0.025,
                                          0.05,   0.075, 0.1,    0.2,   0.5,    1.0,  2.5,   5.0};
// The first bound that is not below `value`; bounds.size() where none is.
size_t bucket_of(std::span<const double> bounds, double value);
// As labels spell it: "0.0005", as queries and other exporters do, and not "5e-04".
std::string bucket_name(double bound);

class Histogram {
 public:
  explicit Histogram(std::span<const double> bounds)
      : bounds_(bounds.begin(), bounds.end()), counts_(bounds.size() + 1) {}
  void observe(double value, int64_t n = 1);
  const std::vector<double>& bounds() const { return bounds_; }
  const std::vector<int64_t>& counts() const { return counts_; }
  int64_t count() const;
  double sum() const { return sum_; }

 private:
  std::vector<double> bounds_;
  std::vector<int64_t> counts_;  // one more than bounds
  double sum_ = 0;
};

enum class Abort : uint8_t { kClientGone, kSlowReader, kShutdown, kNoMemory };
inline constexpr std::array kAbortNames = {"client_gone", "slow_reader", "shutdown", "no_memory"};
inline constexpr std::array kRouteNames = {"chat",    "completions", "models", "text", "health",
                                           "metrics", "engine",      "page",   "other"};
inline constexpr std::array kStepPartNames = {"plan", "forward", "sample", "settle"};
inline constexpr std::array kErrorNames = {"bad_request", "forbidden",   "not_found",   "timeout", "too_large",
                                           "too_many",    "client_gone", "unavailable", "internal"};

// What is known at the end of a generation; the same numbers go to the request log. Times in whole_microseconds.
struct RequestTimes {
  double queue = 0;  // arrival until the first step that had it
  double first_token = 0;
  double prefill = 0;  // from the first step to the first token
  double decode = 0;   // from the first token to the last one
  double total = 0;
  double itl_sum = 0;  // between tokens of one choice
  int64_t itl_count = 0;
  std::array<int32_t, kItlBounds.size() + 1> itl_buckets = {};
  bool has_first_token = false;
  std::array<double, kPhaseNames.size()> phases = {};  // where its time went: that of the choice that took longest
};

// Gauges that others own.
struct ServerGauges {
  int64_t connections = 0;
  int64_t body_bytes = 0;  // that have arrived and are not handled
  int64_t requests_active = 0;
  double uptime = 0;
  bool ready = false;
  int64_t spans_sent = 0, spans_dropped = 0;  // of requests, to a receiver of spans
  std::vector<TenantFigures> tenants = {};
};

// All that is counted.
struct MetricCounts {
  MetricCounts();
  Histogram ttft, itl, e2e, queue, prefill, decode, step, step_tokens, prompt_len, answer_len;
  std::array<std::array<int64_t, 5>, kRouteNames.size()> responses = {};  // by class of status
  std::array<int64_t, kErrorNames.size()> errors = {};
  std::array<int64_t, kAbortNames.size()> aborts = {};
  std::array<int64_t, 9> finishes = {};  // by finish_reasons()
  std::array<double, kStepPartNames.size()> step_parts = {};
  std::array<double, kPhaseNames.size()> phases = {};
  int64_t prefill_tokens = 0, decode_tokens = 0;  // of steps
  int64_t step_sequences = 0;                     // added up over steps
  int64_t prompt_tokens = 0, cached_tokens = 0, generated_tokens = 0;
  int64_t longest = 0;  // tokens of a request, its prompt included
  int64_t connections_refused = 0, log_lines_lost = 0;
};
// Those that an answer may end for.
std::span<const FinishReason> finish_reasons();

enum class MetricNames : uint8_t { kIbid, kVllm, kLlamaCpp };
Result<MetricNames> metric_names_by_name(std::string_view name);

class Metrics {
 public:
  void add_response(std::string_view route, int status);
  void add_abort(Abort cause);
  void add_request(const RequestTimes& times, int64_t prompt_tokens, int64_t answer_tokens);  // at its end
  void add_itl(double seconds, int64_t n);                                                    // inter-token latency
  void add_finish(std::string_view reason);
  void add_tokens(int64_t prompt, int64_t cached, int64_t generated);
  // After each step; again is no harm. `engine`: whose, where there are several.
  void add_step(const EngineStats& stats, const void* engine = nullptr);
  void add_connection_refused();
  void add_log_line_lost();
  // Metrics that `names` has no name for keep ours. `model` is a label where others have it as one.
  std::string text(const EngineStats& stats, const ServerGauges& gauges, MetricNames names = MetricNames::kIbid,
                   std::string_view model = {}) const;

 private:
  mutable std::mutex mutex_;
  MetricCounts counts_;
  std::map<const void*, int64_t> last_steps_;  // of each engine
};

}  // namespace ibid
