#include "cli/options/flag_values.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cmath>

namespace ibid::cli {
namespace {

// The factor of a unit's spelling ("", "K", "kb", "KiB", "b"), or 0.
int64_t factor_of(std::string_view unit) {
  std::string lower;
  for (const char c : unit) lower += static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
  if (lower.empty() || lower == "b") return 1;
  const size_t power = std::string_view("kmgt").find(lower[0]);
  const std::string_view rest = std::string_view(lower).substr(1);
  if (power == std::string_view::npos || (!rest.empty() && rest != "b" && rest != "ib")) return 0;
  return int64_t{1} << (10 * (power + 1));
}

template <typename Number>
bool read_number(std::string_view text, Number& value, std::string_view& rest) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  rest = text.substr(static_cast<size_t>(end - text.data()));
  return error == std::errc();
}

Error wrong(std::string_view text, std::string_view wanted) {
  return invalid(fmt::format("invalid value '{}'; expected {}", text, wanted));
}

}  // namespace

Result<int64_t> read_whole(std::string_view text, int64_t min, int64_t max) {
  int64_t value = 0;
  std::string_view rest;
  if (!read_number(text, value, rest) || !rest.empty() || value < min || value > max)
    return wrong(text, fmt::format("a whole number from {} to {}", min, max));
  return value;
}

Result<int64_t> read_bytes(std::string_view text, int64_t min, int64_t max) {
  double value = 0;
  std::string_view unit;
  const bool is_number = read_number(text, value, unit);
  const double bytes = value * static_cast<double>(factor_of(unit));
  const bool in_range = bytes >= static_cast<double>(min) && bytes <= static_cast<double>(max);
  if (!is_number || factor_of(unit) == 0 || !in_range || bytes != std::floor(bytes))
    return wrong(
        text, fmt::format("a number of bytes from {} to {}, as 4096, 16K, 8M or 2G", bytes_text(min), bytes_text(max)));
  return static_cast<int64_t>(bytes);
}

Result<double> read_seconds(std::string_view text, double min, double max) {
  double value = 0;
  std::string_view rest;
  const bool is_number = read_number(text, value, rest) && rest.empty();
  if (!is_number || !(value >= min && value <= max))
    return wrong(text, fmt::format("a number of seconds from {} to {}", seconds_text(min), seconds_text(max)));
  return value;
}

Result<double> read_duration(std::string_view text, double min, double max) {
  double value = 0;
  std::string_view unit;
  const bool is_number = read_number(text, value, unit) && (unit.empty() || unit == "s" || unit == "ms");
  if (unit == "ms") value /= 1000;
  if (!is_number || !(value >= min && value <= max))
    return wrong(text, fmt::format("a time from {} to {} seconds, as 50ms or 0.05", min, max));
  return value;
}

std::string seconds_text(double seconds) { return fmt::format("{}", seconds); }

}  // namespace ibid::cli
