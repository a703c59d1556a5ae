// A request's policy of which keys and values it goes on without (docs/users/caching.md).
#include <algorithm>
#include <limits>

#include "base/quoted.h"
#include "server/fields/read_fields.h"

namespace ibid {
namespace {

Status read_member(KvEviction& out, const std::string& key, const Json& value) {
  const std::string where = "kv_eviction." + shown(key, 64);
  if (key == "method") {
    const std::string* name = value.string();
    const std::optional<KvMethod> method = name == nullptr ? std::nullopt : kv_method(*name);
    if (!method) return wrong_value(where, "none, snapkv, h2o or streaming", value);
    out.method = *method;
    return {};
  }
  if (key == "keep_share") {
    ASSIGN_OR_RETURN(const double share, read_number(value, 0, 1, false, where));
    if (share <= 0) return invalid(where + " must be above 0.", where);
    out.keep_share = std::max(std::numeric_limits<float>::min(), static_cast<float>(share));
    return {};
  }
  const auto integer = [&](int32_t& field, int32_t least, int32_t most) -> Status {
    ASSIGN_OR_RETURN(const int64_t n, read_integer(value, least, most, where));
    field = static_cast<int32_t>(n);
    return {};
  };
  if (key == "keep") return integer(out.keep, 1, std::numeric_limits<int32_t>::max() / 2);
  if (key == "window") return integer(out.window, 1, KvEviction::kMaxWindow);
  if (key == "sinks") return integer(out.sinks, 0, KvEviction::kMaxWindow);
  return unsupported(where + " is not served; leave it out.", where);
}

}  // namespace

Status read_kv_eviction(ApiRequest& request, const Json& value, const ApiLimits&) {
  if (value.object() == nullptr)
    return wrong_value("kv_eviction", "an object such as {\"method\": \"snapkv\", \"keep\": 1024}", value);
  KvEviction& out = request.kv_eviction.emplace();
  bool has_method = false, has_keep = false, has_share = false;
  for (const auto& [key, what] : *value.object()) {
    if (what.is_null()) continue;
    TRY(read_member(out, key, what));
    has_method |= key == "method", has_keep |= key == "keep", has_share |= key == "keep_share";
  }
  if (!has_method)
    return invalid("kv_eviction has no method; expected none, snapkv, h2o or streaming.", "kv_eviction.method");
  if (out && has_keep == has_share)
    return invalid("kv_eviction needs either keep, a number of tokens, or keep_share, a share of the prompt.",
                   "kv_eviction.keep");
  return validate(out);
}

// A default is of those that may have one: what it cannot stand beside keeps all.
void take_default_eviction(const KvEviction& eviction, ApiRequest& request) {
  const bool reads_prompt = request.prompt_logprobs >= 0 || request.echo;
  const bool searches = request.search.kind != SearchKind::kNone;
  if (request.kv_eviction || reads_prompt || searches || !request.pictures.empty() || pins_drafts(request.verifier))
    return;
  request.kv_eviction = eviction;
}

}  // namespace ibid
