#include "engine/state/kv_eviction.h"

#include <fmt/format.h>

#include <array>
#include <charconv>

namespace ibid {
namespace {

constexpr std::array<std::string_view, 4> kMethodNames = {"none", "snapkv", "h2o", "streaming"};
constexpr int32_t kSnapPool = 7;

}  // namespace

std::string_view name_of(KvMethod method) { return kMethodNames[static_cast<size_t>(method)]; }

std::optional<KvMethod> kv_method(std::string_view name) {
  const auto* const at = std::ranges::find(kMethodNames, name);
  if (at == kMethodNames.end()) return std::nullopt;
  return static_cast<KvMethod>(at - kMethodNames.begin());
}

KeptRows KvEviction::kept() const {
  switch (method) {
    case KvMethod::kStreaming:
      return {.n = keep, .n_first = sinks, .n_last = keep - sinks};
    case KvMethod::kHeavy:
      return {.n = keep, .n_last = std::max(window, keep / 2), .n_queries = window};
    case KvMethod::kSnapKv:
      return {.n = keep, .n_last = window, .n_queries = window, .pool = kSnapPool};
    case KvMethod::kNone:
      break;
  }
  return {};
}

int64_t KvEviction::most_rows(int32_t prompt_len) const {
  const int64_t then = method == KvMethod::kStreaming ? int64_t{keep} + kInterval : 0;
  return std::max<int64_t>(prompt_len, then) + keep;
}

Result<KvEviction> parse_kv_eviction(std::string_view text) {
  const auto wrong = [&] {
    return invalid(
        fmt::format("An eviction of keys and values is \"{}\"; expected none, or snapkv, h2o or streaming with "
                    "how many tokens are kept, as in snapkv:1024 or snapkv:25%.",
                    text),
        "kv_eviction");
  };
  KvEviction out;
  const size_t colon = text.find(':');
  const std::optional<KvMethod> method = kv_method(text.substr(0, colon));
  if (!method) return wrong();
  out.method = *method;
  if (*method == KvMethod::kNone) {
    if (colon != std::string_view::npos) return wrong();
    return out;
  }
  if (colon == std::string_view::npos) return wrong();
  std::string_view number = text.substr(colon + 1);
  const bool is_share = number.ends_with('%');
  if (is_share) number.remove_suffix(1);
  int32_t n = 0;
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), n);
  if (error != std::errc() || end != number.data() + number.size() || number.empty()) return wrong();
  if (is_share && (n < 1 || n > 100)) return wrong();
  if (is_share) {
    out.keep_share = static_cast<float>(n) / 100;
  } else {
    out.keep = n;
  }
  TRY(validate(out));
  return out;
}

Status validate(const KvEviction& e) {
  if (!e) return {};
  if (e.window < 1 || e.window > KvEviction::kMaxWindow)
    return invalid(fmt::format("window of kv_eviction is {}; expected 1 to {}.", e.window, KvEviction::kMaxWindow),
                   "kv_eviction");
  if (e.sinks < 0 || e.sinks > KvEviction::kMaxWindow)
    return invalid(fmt::format("sinks of kv_eviction is {}; expected 0 to {}.", e.sinks, KvEviction::kMaxWindow),
                   "kv_eviction");
  if (!(e.keep_share >= 0 && e.keep_share <= 1))
    return invalid("keep_share of kv_eviction is no share of the prompt; expected above 0 and up to 1.", "kv_eviction");
  if (e.keep_share == 0 && e.keep < e.least()) {
    const std::string always = e.method == KvMethod::kStreaming ? fmt::format("{} sinks and the last token", e.sinks)
                                                                : fmt::format("the {} tokens of its window", e.window);
    return invalid(
        fmt::format("keep of kv_eviction is {}; {} are always kept, so {} is the least.", e.keep, always, e.least()),
        "kv_eviction");
  }
  return {};
}

}  // namespace ibid
