#include "text/tokenizer/token_map.h"

#include <algorithm>
#include <array>
#include <bit>

namespace ibid {

Result<TokenMap> TokenMap::build(const std::vector<std::string>& tokens) {
  TokenMap map;
  map.tokens_ = &tokens;
  TRY(map.rebuild(std::bit_ceil(std::max<size_t>(16, tokens.size() * 2))));
  return map;
}

Status TokenMap::rebuild(size_t n_slots) {
  slots_.assign(n_slots, Slot{});
  mask_ = n_slots - 1;
  shift_ = 64 - std::countr_zero(n_slots);
  n_used_ = longest_ = 0;
  constexpr size_t kAtOnce = 32;
  std::array<uint64_t, kAtOnce> hashes;
  for (size_t first = 0; first < tokens_->size(); first += kAtOnce) {
    size_t n = std::min(kAtOnce, tokens_->size() - first);
    for (size_t k = 0; k < n; ++k) prefetch_slot(hashes[k] = hash((*tokens_)[first + k]));
    for (size_t k = 0; k < n; ++k) TRY(insert(static_cast<int32_t>(first + k), hashes[k]));
  }
  return {};
}

Status TokenMap::insert(int32_t id) { return insert(id, hash((*tokens_)[static_cast<size_t>(id)])); }

Status TokenMap::insert(int32_t id, uint64_t token_hash) {
  constexpr size_t kMaxProbes = 1024;  // a file made to collide must not cost its square
  const std::string& token = (*tokens_)[static_cast<size_t>(id)];
  if (token.empty()) return {};
  if (++n_used_ * 4 > slots_.size() * 3) return rebuild(slots_.size() * 2);
  uint64_t h = mix(token_hash);
  size_t i = static_cast<size_t>(h >> shift_), probes = 0;
  for (; slots_[i].id >= 0; i = (i + 1) & mask_) {
    const Slot& slot = slots_[i];
    if (slot.tag == static_cast<uint32_t>(h) && (*tokens_)[static_cast<size_t>(slot.id)] == token) {
      return invalid("the vocabulary has the same token twice, at ids " + std::to_string(slot.id) + " and " +
                     std::to_string(id) + "; every token must be spelled differently");
    }
    if (++probes == kMaxProbes) return invalid("the vocabulary's tokens are made to collide; it cannot be trusted");
  }
  longest_ = std::max(longest_, probes);
  slots_[i] = {static_cast<uint32_t>(h), id};
  return {};
}

}  // namespace ibid
