// Spans of requests for OpenTelemetry: OTLP over HTTP as JSON (opentelemetry.io/docs/specs/otlp, version 1.7; names of
// attributes by its semantic conventions for HTTP and generative AI). One span a request that asks for an answer, with
// its phases as children.
//
// Sent by a thread of its own from a queue with a bound: what does not fit, or what the receiver refuses, is dropped
// and counted, and no request ever waits for a receiver. add() and the counters may be called from any thread.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "base/result.h"

namespace ibid {

// Who caused a request: the `traceparent` header (w3.org/TR/trace-context, levels 1 and 2).
struct TraceParent {
  std::string trace_id;  // 32 digits
  std::string span_id;   // 16 digits
  bool is_sampled = false;
};
// Nothing where it is not one; unknown versions are read as far as they are known.
std::optional<TraceParent> parse_trace_parent(std::string_view header);

// A stretch of time within a request.
struct SpanPhase {
  const char* name = "";
  double begin = 0, end = 0;  // on the steady clock
};

struct RequestSpan {
  std::optional<TraceParent> parent;
  std::string name;           // "POST /v1/chat/completions"
  double begin = 0, end = 0;  // on the steady clock
  bool has_failed = false;
  std::vector<std::pair<std::string, std::string>> texts;
  std::vector<std::pair<std::string, int64_t>> numbers;
  std::vector<std::pair<std::string, double>> seconds;
  std::vector<SpanPhase> phases;
};

class SpanSender {
 public:
  static constexpr size_t kMaxQueue = 4096;  // requests

  // `url` of a receiver, as http://localhost:4318; /v1/traces is meant where it has no path.
  static Result<std::unique_ptr<SpanSender>> create(const std::string& url);
  ~SpanSender();  // sends what waits, for two seconds at most

  void add(RequestSpan span) noexcept;  // of a parent that is not sampled: nothing
  int64_t n_sent() const { return n_sent_; }
  int64_t n_dropped() const { return n_dropped_; }

 private:
  explicit SpanSender(std::string url);
  void loop();
  std::string written(const std::vector<RequestSpan>& spans);
  std::string random_digits(int n_digits);

  const std::string url_;
  const double unix_minus_steady_;  // seconds
  std::mutex mutex_;                // guards queue_, closing_
  std::condition_variable wake_;
  std::deque<RequestSpan> queue_;
  bool closing_ = false;
  std::atomic<bool> hurried_ = false;
  std::atomic<int64_t> n_sent_ = 0, n_dropped_ = 0;
  std::thread thread_;
};

}  // namespace ibid
