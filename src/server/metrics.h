// Metrics: counters and histograms of the server, and the text of /metrics (Prometheus exposition format 0.0.4). Labels
// come from fixed sets. Safe from any thread.
#pragma once

#include <array>
#include <cstdint>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "engine/engine.h"

namespace ibid {

class Histogram {
 public:
  explicit Histogram(std::span<const double> bounds)
      : bounds_(bounds.begin(), bounds.end()), counts_(bounds.size() + 1) {}
  void observe(double value, int64_t n = 1);
  void append_text(std::string& out, const char* name, const char* help) const;
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
inline constexpr std::array kErrorNames = {"bad_request", "forbidden", "not_found",   "timeout",
                                           "too_large",   "too_many",  "unavailable", "internal"};

// What is known at the end of a generation; the same numbers go to the request log. Times in seconds.
struct RequestTimes {
  double queue = 0;  // arrival until the first step that had it
  double first_token = 0;
  double total = 0;
  double itl_sum = 0;  // between tokens of one choice
  int64_t itl_count = 0;
  bool has_first_token = false;
};

// Gauges that others own.
struct ServerGauges {
  int64_t connections = 0;
  int64_t requests_active = 0;
  double uptime = 0;
  bool ready = false;
};

class Metrics {
 public:
  Metrics();
  void add_response(std::string_view route, int status);
  void add_abort(Abort cause);
  void add_times(const RequestTimes& times);
  void add_gap(double seconds, int64_t n);  // inter-token latency
  void add_finish(std::string_view reason);
  void add_step(const EngineStats& stats);  // once per step
  void add_connection_refused();
  void add_log_line_lost();
  std::string text(const EngineStats& stats, const ServerGauges& gauges) const;

 private:
  mutable std::mutex mutex_;
  Histogram ttft_, itl_, e2e_, queue_, step_;
  std::array<std::array<int64_t, 5>, kRouteNames.size()> responses_ = {};  // by class of status
  std::array<int64_t, kErrorNames.size()> errors_ = {};
  std::array<int64_t, kAbortNames.size()> aborts_ = {};
  std::array<int64_t, 9> finishes_ = {};
  std::array<double, 4> step_parts_ = {};
  int64_t steps_seen_ = 0, last_step_ = 0;
  int64_t connections_refused_ = 0, log_lines_lost_ = 0;
};

}  // namespace ibid
