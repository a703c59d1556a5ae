// RequestLog: one line for each request and each event in the server's life, as text or JSON, to standard error or a
// file. A line that cannot be written is lost and counted; serving goes on, and waits
// for no reader of its log.
#pragma once

#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "server/observe/metrics.h"

namespace ibid {

struct RequestLine {
  std::string_view request_id;
  std::string_view tenant;
  std::string_view method;
  std::string_view route;  // from a fixed set
  int status = 200;
  double seconds = 0;
  // Of a generation; has_times false otherwise.
  bool has_times = false;
  RequestTimes times;
  int32_t prompt_tokens = 0, cached_tokens = 0, completion_tokens = 0, n_preemptions = 0;
  std::vector<std::pair<const char*, int32_t>> choices;  // finish_reason_name and how many ended so
  std::string_view finish;  // finish_reason_name, or the cause of an abort (then of any exchange)
  bool stream = false;
};

// JSON has more than text: what it takes to recompute /metrics.
std::string format_request_line(const RequestLine& line, bool json, double unix_time);

class RequestLog {
 public:
  // Opens `path` for appending (empty: standard error) and writes nothing yet.
  static Result<std::unique_ptr<RequestLog>> open(const std::string& path, bool json, bool requests);
  ~RequestLog();

  // Opens the file again by its name, where another program has taken the old one away; no line is lost. Where that
  // fails, the old one goes on. Nothing on standard error.
  Status reopen();

  void on_lost(std::function<void()> callback) { lost_ = std::move(callback); }
  bool add(const RequestLine& line);
  // A sentence about the server itself, with the time. False where it could not be written.
  bool say(std::string_view sentence);
  // The same of what is wrong and does not end it. Waits for no reader.
  bool warn(std::string_view sentence);
  // And of what ends it; where the log is a file.
  void say_end(std::string_view sentence);

 private:
  RequestLog(int fd, std::string path, bool json, bool requests)
      : fd_(fd), path_(std::move(path)), json_(json), requests_(requests) {}
  bool write_line(std::string line, int patience_ms);
  std::string line_of(std::string_view level, std::string_view sentence) const;

  std::mutex mutex_;
  int fd_;
  const std::string path_;  // empty: standard error, which is not ours to close
  const bool json_, requests_;
  std::function<void()> lost_;
};

}  // namespace ibid
