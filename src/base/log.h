// Log lines on standard error, through spdlog (kept out of this header for the sake of build times).
#pragma once

#include <string>
#include <string_view>

namespace ibid {

enum class LogLevel { kDebug, kInfo, kWarn, kError };

void set_log_level(std::string_view level);  // trace, debug, info, warn, error, off; others change nothing
void log(LogLevel level, std::string_view message);
inline void log_debug(std::string_view m) { log(LogLevel::kDebug, m); }
inline void log_info(std::string_view m) { log(LogLevel::kInfo, m); }
inline void log_warn(std::string_view m) { log(LogLevel::kWarn, m); }
inline void log_error(std::string_view m) { log(LogLevel::kError, m); }

}  // namespace ibid
