#include "text/token_map.h"

#include <algorithm>
#include <bit>

namespace ibid {

Result<TokenMap> TokenMap::build(const std::vector<std::string>& tokens) {
  constexpr size_t kMaxProbes = 1024;  // a file made to collide must not cost its square
  TokenMap map;
  map.tokens_ = &tokens;
  size_t n_slots = std::bit_ceil(std::max<size_t>(16, tokens.size() * 2));
  map.slots_.resize(n_slots);
  map.mask_ = n_slots - 1;
  map.shift_ = 64 - std::countr_zero(n_slots);
  for (size_t id = 0; id < tokens.size(); ++id) {
    const std::string& token = tokens[id];
    if (token.empty()) continue;
    uint64_t h = mix(hash(token));
    size_t i = static_cast<size_t>(h >> map.shift_);
    for (size_t probes = 0; map.slots_[i].id >= 0; i = (i + 1) & map.mask_) {
      const Slot& slot = map.slots_[i];
      if (slot.tag == static_cast<uint32_t>(h) && tokens[static_cast<size_t>(slot.id)] == token) {
        return invalid("the vocabulary has the same token twice, at ids " + std::to_string(slot.id) + " and " +
                       std::to_string(id) + "; every token must be spelled differently");
      }
      if (++probes == kMaxProbes) return invalid("the vocabulary's tokens are made to collide; it cannot be trusted");
    }
    map.slots_[i] = {static_cast<uint32_t>(h), static_cast<int32_t>(id)};
  }
  return map;
}

}  // namespace ibid
