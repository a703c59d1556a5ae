#include "server/observe/request_log.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <ctime>
#include <utility>

#include "base/json_writer.h"
#include "server/wire/api_error.h"

namespace ibid {
namespace {

double unix_now() { return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count(); }

std::string timestamp(double unix_time) {
  const auto seconds = static_cast<time_t>(unix_time);
  tm parts = {};
  gmtime_r(&seconds, &parts);
  char text[40];
  const size_t n = strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &parts);
  const int millis = static_cast<int>((unix_time - static_cast<double>(seconds)) * 1000);
  return std::string(text, n) + "." + std::to_string(1000 + millis).substr(1) + "Z";
}

std::string in_ms(double seconds) {
  std::string text;
  JsonWriter(text).number(seconds * 1000, 3);
  return text;
}

void write_itl(JsonWriter& json, const RequestTimes& times) {
  json.key("itl_sum_ms").raw(in_ms(times.itl_sum)).field("itl_count", times.itl_count);
  json.key("itl_buckets").begin_object();
  for (size_t i = 0; i < times.itl_buckets.size(); ++i) {
    if (times.itl_buckets[i] == 0) continue;
    json.field(i < kItlBounds.size() ? bucket_name(kItlBounds[i]) : "+Inf", int64_t{times.itl_buckets[i]});
  }
  json.end_object();
}

Result<int> open_file(const std::string& path) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0640);
  if (fd < 0) return unavailable("The log file " + path + " cannot be opened: " + std::strerror(errno) + ".", path);
  return fd;
}

// A value of a line: what would end it, or hide in it, becomes a question mark.
std::string in_ascii(std::string_view text) {
  constexpr size_t kMost = 128;
  std::string out(text.substr(0, kMost));
  std::ranges::replace_if(
      out, [](unsigned char c) { return c < 0x20 || c >= 0x7f || c == '"'; }, '?');
  return text.size() > kMost ? out + "..." : out;
}

}  // namespace

std::string format_request_line(const RequestLine& line, bool json, double unix_time) {
  std::string out;
  JsonWriter writer(out);
  if (json) {
    writer.begin_object().field("time", timestamp(unix_time)).field("event", "request");
  } else {
    out = timestamp(unix_time);
  }
  const auto text = [&](std::string_view name, std::string_view value) {
    json ? static_cast<void>(writer.field(name, value))
         : static_cast<void>(out.append(" ").append(name).append("=").append(value.empty() ? "-" : in_ascii(value)));
  };
  const auto number = [&](std::string_view name, const std::string& value) {
    json ? static_cast<void>(writer.key(name).raw(value))
         : static_cast<void>(out.append(" ").append(name).append("=").append(value));
  };
  text("id", line.request_id);
  text("tenant", line.tenant);
  text("method", std::string_view(line.method).substr(0, 32));  // a client's own may be as long as a header
  text("route", line.route);
  number("status", std::to_string(line.status));
  number("total_ms", in_ms(line.seconds));
  if (line.has_times) {
    if (line.times.has_first_token) {
      number("queue_ms", in_ms(line.times.queue));
      number("ttft_ms", in_ms(line.times.first_token));
    }
    if (line.times.itl_count > 0)
      number("itl_ms", in_ms(line.times.itl_sum / static_cast<double>(line.times.itl_count)));
    number("prompt_tokens", std::to_string(line.prompt_tokens));
    number("cached_tokens", std::to_string(line.cached_tokens));
    number("completion_tokens", std::to_string(line.completion_tokens));
    number("preemptions", std::to_string(line.n_preemptions));
    number("stream", line.stream ? "true" : "false");
    if (json) {
      if (line.times.has_first_token) {
        number("prefill_ms", in_ms(line.times.prefill));
        number("decode_ms", in_ms(line.times.decode));
      }
      writer.key("ledger_ms").begin_object();
      for (size_t i = 0; i < kPhaseNames.size(); ++i) writer.key(kPhaseNames[i]).raw(in_ms(line.times.phases[i]));
      writer.end_object();
      if (line.times.itl_count > 0) write_itl(writer, line.times);
      writer.key("choices").begin_object();
      for (const auto& [reason, count] : line.choices) writer.field(reason, int64_t{count});
      writer.end_object();
    }
  }
  if (!line.finish.empty()) text("finish", line.finish);
  if (json) writer.end_object();
  return out;
}

Result<std::unique_ptr<RequestLog>> RequestLog::open(const std::string& path, bool json, bool requests) {
  int fd = STDERR_FILENO;
  if (!path.empty()) {
    ASSIGN_OR_RETURN(fd, open_file(path));
  }
  return std::unique_ptr<RequestLog>(new RequestLog(fd, path, json, requests));
}

RequestLog::~RequestLog() {
  if (!path_.empty()) ::close(fd_);
}

Status RequestLog::reopen() {
  if (path_.empty()) return {};
  ASSIGN_OR_RETURN(const int fd, open_file(path_));
  const std::lock_guard lock(mutex_);
  ::close(std::exchange(fd_, fd));
  return {};
}

bool RequestLog::write_line(std::string line, int patience_ms) {
  line += '\n';
  const std::lock_guard lock(mutex_);
  size_t done = 0;
  while (done < line.size()) {
    // A pipe whose reader stands still must not stop the server.
    pollfd ready = {fd_, POLLOUT, 0};
    const bool takes = ::poll(&ready, 1, patience_ms) > 0;
    const ssize_t n = takes ? ::write(fd_, line.data() + done, line.size() - done) : 0;
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      if (lost_) lost_();
      return false;
    }
    done += static_cast<size_t>(n);
  }
  return true;
}

bool RequestLog::add(const RequestLine& line) {
  return !requests_ || write_line(format_request_line(line, json_, unix_now()), 0);
}

// `level`: empty for what is usual.
std::string RequestLog::line_of(std::string_view level, std::string_view sentence) const {
  std::string out = timestamp(unix_now());
  if (!json_) {
    if (!level.empty()) out.append(" ").append(level);
    out += ' ';
    // One line, whatever a file's name or the like brings into it.
    for (const char c : sentence) out += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
    return out;
  }
  const std::string time = std::exchange(out, "");
  JsonWriter writer(out);
  writer.begin_object().field("time", time).field("event", "server");
  if (!level.empty()) writer.field("level", level);
  writer.field("message", sentence).end_object();
  return out;
}

bool RequestLog::say(std::string_view sentence) { return write_line(line_of("", sentence), 1000); }

bool RequestLog::warn(std::string_view sentence) { return write_line(line_of("warning", sentence), 0); }

void RequestLog::say_end(std::string_view sentence) {
  if (!path_.empty()) write_line(line_of("error", sentence), 0);
}

}  // namespace ibid
