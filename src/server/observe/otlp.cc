#include "server/observe/otlp.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <new>
#include <random>

#include "base/clock.h"
#include "base/json_writer.h"
#include "base/thread_name.h"
#include "format/http_client.h"

namespace ibid {
namespace {

constexpr auto kPause = std::chrono::milliseconds(500);
constexpr size_t kMaxBatch = 256;  // requests
constexpr int kTimeoutSeconds = 5;
constexpr double kMostWait = 30, kPartingTime = 2;  // seconds: between tries, and at the end

double unix_minus_steady() {
  const double now = std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  return now - steady_clock().now();
}

bool is_hex(std::string_view text) {
  return std::ranges::all_of(text, [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}
bool is_zero(std::string_view text) { return text.find_first_not_of('0') == std::string_view::npos; }

// The specification's list of what may pass when tried again.
bool may_pass(int status) { return status == 429 || status == 502 || status == 503 || status == 504; }

// OTLP's form of a value: its type is the name of its member, and whole numbers are texts.
template <typename T>
void write_attribute(std::string_view key, const T& value, JsonWriter& json) {
  json.begin_object().field("key", key).key("value").begin_object();
  if constexpr (std::is_floating_point_v<T>) {
    json.key("doubleValue").number(value);
  } else if constexpr (std::is_integral_v<T>) {
    json.field("intValue", std::to_string(value));
  } else {
    json.field("stringValue", value);
  }
  json.end_object().end_object();
}

void write_attributes(const RequestSpan& span, JsonWriter& json) {
  json.key("attributes").begin_array();
  for (const auto& [key, value] : span.texts) write_attribute(key, value, json);
  for (const auto& [key, value] : span.numbers) write_attribute(key, value, json);
  for (const auto& [key, value] : span.seconds) write_attribute(key, value, json);
  json.end_array();
}

}  // namespace

std::optional<TraceParent> parse_trace_parent(std::string_view h) {
  constexpr size_t kLen = 55;
  if (h.size() < kLen || h[2] != '-' || h[35] != '-' || h[52] != '-') return std::nullopt;
  const std::string_view version = h.substr(0, 2), trace = h.substr(3, 32), span = h.substr(36, 16),
                         flags = h.substr(53, 2);
  if (!is_hex(version) || version == "ff" || !is_hex(trace) || !is_hex(span) || !is_hex(flags)) return std::nullopt;
  if (is_zero(trace) || is_zero(span)) return std::nullopt;
  if (h.size() > kLen && (version == "00" || h[kLen] != '-')) return std::nullopt;
  const bool is_sampled = std::string_view("13579bdf").find(flags[1]) != std::string_view::npos;
  return TraceParent{std::string(trace), std::string(span), is_sampled};
}

Result<std::unique_ptr<SpanSender>> SpanSender::create(const std::string& url) {
  ASSIGN_OR_RETURN(Url parsed, parse_url(url));
  if (parsed.target == "/") parsed.target = "/v1/traces";
  return std::unique_ptr<SpanSender>(new SpanSender(parsed.text()));
}

SpanSender::SpanSender(std::string url) : url_(std::move(url)), unix_minus_steady_(unix_minus_steady()) {
  thread_ = std::thread([this] {
    name_thread("ibid-otlp");
    loop();
  });
}

SpanSender::~SpanSender() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  wake_.notify_one();
  // A receiver that hangs has so long; then its connection is given up.
  const double deadline = steady_clock().now() + kPartingTime;
  std::thread hurry([&] {
    std::unique_lock lock(mutex_);
    wake_.wait_for(lock, std::chrono::duration<double>(std::max(0.0, deadline - steady_clock().now())),
                   [this] { return hurried_.load(); });
    hurried_ = true;
  });
  thread_.join();
  {
    const std::lock_guard lock(mutex_);
    hurried_ = true;
  }
  wake_.notify_all();
  hurry.join();
}

void SpanSender::add(RequestSpan span) noexcept {
  if (span.parent && !span.parent->is_sampled) return;
  try {
    const std::lock_guard lock(mutex_);
    if (queue_.size() < kMaxQueue) {
      queue_.push_back(std::move(span));
      if (queue_.size() == kMaxBatch) wake_.notify_one();
      return;
    }
  } catch (const std::bad_alloc&) {
  }
  ++n_dropped_;
}

void SpanSender::loop() {
  std::vector<RequestSpan> batch;
  double wait = 0;
  for (bool closing = false; !closing || !batch.empty();) {
    {
      std::unique_lock lock(mutex_);
      const auto pause = std::max(std::chrono::duration<double>(wait), std::chrono::duration<double>(kPause));
      wake_.wait_for(lock, pause, [&] { return closing_ || (wait == 0 && queue_.size() >= kMaxBatch); });
      closing = closing_;
      while (!queue_.empty() && batch.size() < kMaxBatch) {
        batch.push_back(std::move(queue_.front()));
        queue_.pop_front();
      }
    }
    if (batch.empty()) continue;
    const auto n = static_cast<int64_t>(batch.size());
    Result<int> status = unavailable("");
    try {
      status = http_post({.url = url_, .timeout_s = kTimeoutSeconds, .cancelled = [this] { return hurried_.load(); }},
                         "application/json", written(batch));
    } catch (const std::bad_alloc&) {
      status = 500;
    }
    const bool is_taken = status.ok() && *status >= 200 && *status < 300;
    const bool again = !closing && (status.ok() ? may_pass(*status) : status.error().kind == ErrorKind::kUnavailable);
    if (again) {
      wait = std::min(kMostWait, std::max(1.0, 2 * wait));
      continue;
    }
    (is_taken ? n_sent_ : n_dropped_) += n;
    wait = 0;
    batch.clear();
    const std::lock_guard lock(mutex_);
    closing = closing && queue_.empty();
    if (hurried_) {
      n_dropped_ += static_cast<int64_t>(queue_.size());
      queue_.clear();
      closing = true;
    }
  }
}

std::string SpanSender::random_digits(int n_digits) {
  static thread_local std::mt19937_64 random{std::random_device{}()};
  std::string out;
  for (int i = 0; i < n_digits; ++i) out += "0123456789abcdef"[random() % 16];
  if (is_zero(out)) out.back() = '1';
  return out;
}

std::string SpanSender::written(const std::vector<RequestSpan>& spans) {
  std::string out;
  JsonWriter json(out);
  const auto nanoseconds = [&](double at) {
    return std::to_string(static_cast<int64_t>(std::llround((at + unix_minus_steady_) * 1e6)) * 1000);
  };
  const auto head = [&](const std::string& trace, const std::string& id, std::string_view parent, std::string_view name,
                        int64_t kind, double begin, double end) {
    json.begin_object().field("traceId", trace).field("spanId", id);
    if (!parent.empty()) json.field("parentSpanId", parent);
    json.field("name", name).field("kind", kind);
    json.field("startTimeUnixNano", nanoseconds(begin)).field("endTimeUnixNano", nanoseconds(std::max(begin, end)));
  };
  constexpr int64_t kInternal = 1, kServer = 2, kError = 2;
  json.begin_object().key("resourceSpans").begin_array().begin_object();
  json.key("resource").begin_object().key("attributes").begin_array();
  write_attribute("service.name", std::string_view("ibid"), json);
  write_attribute("service.version", std::string_view(IBID_VERSION), json);
  json.end_array().end_object();
  json.key("scopeSpans").begin_array().begin_object();
  json.key("scope").begin_object().field("name", "ibid").field("version", IBID_VERSION).end_object();
  json.key("spans").begin_array();
  for (const RequestSpan& span : spans) {
    const std::string trace = span.parent ? span.parent->trace_id : random_digits(32), id = random_digits(16);
    head(trace, id, span.parent ? std::string_view(span.parent->span_id) : "", span.name, kServer, span.begin,
         span.end);
    write_attributes(span, json);
    if (span.has_failed) json.key("status").begin_object().field("code", kError).end_object();
    json.end_object();
    for (const SpanPhase& phase : span.phases) {
      head(trace, random_digits(16), id, phase.name, kInternal, phase.begin, phase.end);
      json.end_object();
    }
  }
  json.end_array().end_object().end_array().end_object().end_array().end_object();
  return out;
}

}  // namespace ibid
