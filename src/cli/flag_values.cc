#include "cli/flag_values.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cmath>

namespace ibid::cli {
namespace {

constexpr std::string_view kUnits = "KMGT";

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

std::string bytes_text(int64_t n) {
  size_t power = 0;
  while (power < kUnits.size() && n > 0 && n % 1024 == 0) n /= 1024, ++power;
  return power == 0 ? std::to_string(n) : std::to_string(n) + kUnits[power - 1];
}

std::string seconds_text(double seconds) { return fmt::format("{}", seconds); }

Result<std::vector<int32_t>> read_layers(std::string_view text) {
  constexpr int64_t kMost = 9999;
  const Error error = wrong(text, "a list of ascending layers, as 4-12,16-20");
  std::vector<int32_t> out;
  for (std::string_view rest = text;;) {
    const size_t comma = rest.find(',');
    const std::string_view part = rest.substr(0, comma);
    const size_t dash = part.find('-');
    const auto first = read_whole(part.substr(0, dash), out.empty() ? 0 : out.back() + 1, kMost);
    if (!first) return error;
    const auto last = dash == std::string_view::npos ? first : read_whole(part.substr(dash + 1), *first, kMost);
    if (!last) return error;
    for (int64_t l = *first; l <= *last; ++l) out.push_back(static_cast<int32_t>(l));
    if (comma == std::string_view::npos) return out;
    rest.remove_prefix(comma + 1);
  }
}

std::string layers_text(std::span<const int32_t> layers) {
  std::string out;
  for (size_t i = 0; i < layers.size();) {
    size_t end = i + 1;
    while (end < layers.size() && layers[end] == layers[end - 1] + 1) ++end;
    out += (out.empty() ? "" : ",") + std::to_string(layers[i]);
    if (end > i + 1) out += "-" + std::to_string(layers[end - 1]);
    i = end;
  }
  return out;
}

}  // namespace ibid::cli
