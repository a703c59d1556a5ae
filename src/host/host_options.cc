#include "host/host_options.h"

#include <algorithm>
#include <utility>

namespace ibid::host {

int32_t AdapterArgs::n_slots() const {
  if (named.empty() && !may_load) return 0;
  constexpr int32_t kSlots = 32;
  return std::max(max_adapters > 0 ? max_adapters : kSlots, static_cast<int32_t>(named.size()));
}

std::string SpecArgs::proposer() const {
  const std::pair<bool, const char*> kinds[] = {
      {!draft_model.empty(), "draft"}, {!heads.empty(), "heads"}, {!eagle.empty(), "eagle"},    {mtp, "mtp"},
      {!store.empty(), "store"},       {!skip.empty(), "skip"},   {look_ahead > 0, "lookahead"}};
  std::string out;
  for (const auto& [is_there, kind] : kinds) out += is_there ? kind : "";  // of a command line there is one at most
  if (window) out += out.empty() ? "window" : "+window";
  return out;
}

}  // namespace ibid::host
