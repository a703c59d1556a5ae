#include "cli/options/bench_lists.h"

#include <algorithm>
#include <string>

#include "base/quoted.h"
#include "cli/options/flag_values.h"

namespace ibid::cli {
namespace {

constexpr size_t kMost = 1000;

// One number or range.
Status add_counts(std::string_view text, int64_t min, int64_t max, std::vector<int32_t>& out) {
  const size_t dash = text.find('-', 1);
  if (dash == std::string_view::npos) {
    ASSIGN_OR_RETURN(const int64_t n, read_whole(text, min, max));
    out.push_back(static_cast<int32_t>(n));
    return {};
  }
  const size_t by = std::min(text.find_first_of("+*", dash), text.size());
  const auto wrong = [&] {
    return invalid("invalid value " + in_quotes(text) + "; expected a range, as 8-32, 8-32+8 or 8-32*2");
  };
  const auto first = read_whole(text.substr(0, dash), min, max);
  const auto last = read_whole(text.substr(dash + 1, by - dash - 1), min, max);
  const bool multiplies = by < text.size() && text[by] == '*';
  const auto step = by < text.size() ? read_whole(text.substr(by + 1), multiplies ? 2 : 1, max) : Result<int64_t>(1);
  if (!first || !last || !step || *first > *last || (multiplies && *first == 0)) return wrong();
  for (int64_t n = *first; n <= *last; n = multiplies ? n * *step : n + *step) {
    if (out.size() >= kMost) return invalid(in_quotes(text) + " are more than a thousand");
    out.push_back(static_cast<int32_t>(n));
  }
  return {};
}

}  // namespace

Result<std::vector<int32_t>> read_counts(std::string_view text, int64_t min, int64_t max) {
  std::vector<int32_t> out;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find(',', at), text.size());
    TRY(add_counts(text.substr(at, end - at), min, max, out));
    at = end + 1;
  }
  return out;
}

}  // namespace ibid::cli
