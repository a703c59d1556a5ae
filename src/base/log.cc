#include "base/log.h"

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <mutex>
#include <utility>

namespace ibid {
namespace {

spdlog::logger& logger() {
  static std::shared_ptr<spdlog::logger> one = [] {
    auto made = std::make_shared<spdlog::logger>("ibid", std::make_shared<spdlog::sinks::stderr_color_sink_mt>());
    made->set_pattern("%Y-%m-%dT%H:%M:%S.%e %^%l%$ %v");
    made->set_level(spdlog::level::warn);
    return made;
  }();
  return *one;
}

struct Redirection {
  std::mutex mutex;
  std::function<void(LogLevel, std::string_view)> log;
};
Redirection& redirection() {
  static Redirection one;
  return one;
}

}  // namespace

void set_log_level(std::string_view level) {
  spdlog::level::level_enum parsed = spdlog::level::from_str(std::string(level));
  if (parsed == spdlog::level::off && level != "off") return;
  logger().set_level(parsed);
}

void log_warn(std::string_view message) {
  if (!logger().should_log(spdlog::level::warn)) return;
  Redirection& r = redirection();
  const std::lock_guard lock(r.mutex);
  r.log ? r.log(LogLevel::kWarning, message) : logger().warn("{}", message);
}

void log_info(std::string_view message) {
  Redirection& r = redirection();
  const std::lock_guard lock(r.mutex);
  r.log ? r.log(LogLevel::kInfo, message) : logger().info("{}", message);
}

LogTo::LogTo(std::function<void(LogLevel, std::string_view)> log) {
  const std::lock_guard lock(redirection().mutex);
  redirection().log = std::move(log);
}

LogTo::~LogTo() {
  const std::lock_guard lock(redirection().mutex);
  redirection().log = nullptr;
}

}  // namespace ibid
