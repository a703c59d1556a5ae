#include "base/log.h"

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

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

}  // namespace

void set_log_level(std::string_view level) {
  spdlog::level::level_enum parsed = spdlog::level::from_str(std::string(level));
  if (parsed == spdlog::level::off && level != "off") return;
  logger().set_level(parsed);
}

void log_warn(std::string_view message) { logger().warn("{}", message); }

}  // namespace ibid
