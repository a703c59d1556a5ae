// KvEviction: a request whose sequences go on with the keys and values of fewer tokens than they have. What is kept is
// a function of the model, the prompt's tokens and this policy alone: rows are evicted at points fixed by position,
// never because memory is short, and every row before a point sees all that its sequence had until then. So answers are
// the same under every schedule, and one that lost its blocks is computed again through the same points
// (docs/decisions/0060-eviction-at-fixed-points.md).
//
// A point is a number of tokens of the sequence: after the step that computes the last of them, `keep` rows remain of
// those that there are. Where no more are there, nothing happens.
//   kSnapKv      point: the prompt's end. Kept: the last `window` tokens and, for each layer and KV head, those that
//                the window's queries read most, pooled over 7 neighbours (Li et al., 2024, SnapKV, section 4)
//   kHeavy       the same with heavy hitters: no pooling, and half of what is kept are the last tokens (Zhang et al.,
//                2023, H2O, section 4). H2O sums over all queries, which chunks and cached prefixes do not have: these
//                sums are over the window
//   kStreaming   points: the prompt's end and every 256 tokens after it. Kept: the first `sinks` tokens and the last
//                ones (Xiao et al., 2023, StreamingLLM, section 3.2), with their positions as they were
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "kernels/forward_batch.h"
#include "kernels/kept_rows.h"

namespace ibid {

enum class KvMethod : uint8_t { kNone, kSnapKv, kHeavy, kStreaming };
std::string_view name_of(KvMethod method);  // as requests and flags have it: "none", "snapkv", "h2o", "streaming"
std::optional<KvMethod> kv_method(std::string_view name);

struct KvEviction {
  KvMethod method = KvMethod::kNone;
  int32_t keep = 0;      // rows that remain
  float keep_share = 0;  // > 0: keep is this share of the prompt (admission sets it), and no less than the others need
  int32_t window = 64;   // tokens whose queries score; not of kStreaming
  int32_t sinks = 4;     // of kStreaming
  bool operator==(const KvEviction&) const = default;

  static constexpr int32_t kInterval = 256;  // tokens between the points of kStreaming
  static constexpr int32_t kNever = std::numeric_limits<int32_t>::max();
  static constexpr int32_t kMaxWindow = kMaxScoringQueries;

  explicit operator bool() const { return method != KvMethod::kNone; }
  // The least that `keep` may be.
  int32_t least() const { return method == KvMethod::kStreaming ? sinks + 1 : window; }
  // Of a sequence with a prompt of so many tokens: its first point after n tokens at which rows are evicted.
  int32_t next_point(int32_t prompt_len, int32_t n) const {
    if (method == KvMethod::kNone) return kNever;
    if (method != KvMethod::kStreaming) return n < prompt_len && keep < prompt_len ? prompt_len : kNever;
    const int64_t least = std::max(n, keep) + int64_t{1};
    if (least <= prompt_len) return prompt_len;
    const int64_t point = prompt_len + (least - prompt_len + kInterval - 1) / kInterval * kInterval;
    return point < kNever ? static_cast<int32_t>(point) : kNever;
  }
  // So many tokens before a point must be computed in the step that ends there.
  int32_t n_together() const { return method == KvMethod::kStreaming ? 1 : window; }
  // What remains at a point.
  KeptRows kept() const;
  // The most rows that a sequence holds at once while rows are evicted: those there were, and those that remain.
  int64_t most_rows(int32_t prompt_len) const;
};

// From a flag: "snapkv:1024", "h2o:25%", "streaming:4096", "none". The error states what is expected.
Result<KvEviction> parse_kv_eviction(std::string_view text);

// Whether the numbers are within their bounds; the error is of the field kv_eviction.
Status validate(const KvEviction& eviction);

}  // namespace ibid
