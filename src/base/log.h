// Log lines on standard error, through spdlog (kept out of this header for the sake of build times), or wherever a
// server keeps its log.
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace ibid {

void set_log_level(std::string_view level);  // trace, debug, info, warn, error, off; others change nothing
void log_warn(std::string_view message);
void log_info(std::string_view message);  // on standard error from level info on; a server's log always has it

enum class LogLevel { kInfo, kWarning };
// While one lives, what is logged goes there and not to standard error. `log` is called from any thread, one call at a
// time, and must not log. One at a time in a process.
class LogTo {
 public:
  explicit LogTo(std::function<void(LogLevel, std::string_view)> log);
  ~LogTo();
  LogTo(const LogTo&) = delete;
  LogTo& operator=(const LogTo&) = delete;
};

}  // namespace ibid
