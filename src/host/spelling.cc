#include "host/spelling.h"

#include <charconv>
#include <optional>

namespace ibid::host {
namespace {

// A whole number from `min` to `max` and nothing else.
std::optional<int32_t> layer_from(std::string_view text, int32_t min, int32_t max) {
  int32_t value = 0;
  const char* const text_end = text.data() + text.size();
  const auto [end, error] = std::from_chars(text.data(), text_end, value);
  if (error != std::errc() || end != text_end || value < min || value > max) return std::nullopt;
  return value;
}

}  // namespace

Result<std::vector<int32_t>> read_layers(std::string_view text) {
  constexpr int32_t kMost = 9999;
  const Error error =
      invalid("invalid value '" + std::string(text) + "'; expected a list of ascending layers, as 4-12,16-20");
  std::vector<int32_t> out;
  for (std::string_view rest = text;;) {
    const size_t comma = rest.find(',');
    const std::string_view part = rest.substr(0, comma);
    const size_t dash = part.find('-');
    const auto first = layer_from(part.substr(0, dash), out.empty() ? 0 : out.back() + 1, kMost);
    if (!first) return error;
    const auto last = dash == std::string_view::npos ? first : layer_from(part.substr(dash + 1), *first, kMost);
    if (!last) return error;
    for (int32_t l = *first; l <= *last; ++l) out.push_back(l);
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

std::string bytes_text(int64_t n) {
  constexpr std::string_view kUnits = "KMGT";
  size_t power = 0;
  while (power < kUnits.size() && n > 0 && n % 1024 == 0) n /= 1024, ++power;
  return power == 0 ? std::to_string(n) : std::to_string(n) + kUnits[power - 1];
}

}  // namespace ibid::host
