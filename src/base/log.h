// Log lines on standard error, through spdlog (kept out of this header for the sake of build times).
#pragma once

#include <string>
#include <string_view>

namespace ibid {

void set_log_level(std::string_view level);  // trace, debug, info, warn, error, off; others change nothing
void log_warn(std::string_view message);

}  // namespace ibid
