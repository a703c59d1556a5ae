// TokenMap: spelling -> id over a list of tokens that outlives it. Hashes are polynomial, so that the hashes of all
// prefixes and suffixes of a text cost one multiplication a byte.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace ibid {

class TokenMap {
 public:
  static constexpr uint64_t kBase = 0x9E3779B97F4A7C15u;
  static uint64_t hash(std::string_view s) {
    uint64_t h = 0;
    for (char c : s) h = extend(h, c);
    return h;
  }
  static uint64_t extend(uint64_t h, char c) { return h * kBase + static_cast<unsigned char>(c) + 1; }
  // The hash of two texts in one, the second of them right_bytes long.
  static uint64_t join(uint64_t left, uint64_t right, size_t right_bytes) {
    uint64_t power = 1;
    for (uint64_t square = kBase; right_bytes > 0; right_bytes >>= 1, square *= square) {
      if (right_bytes & 1) power *= square;
    }
    return left * power + right;
  }
  // Its highest bits are the place in the table where a text is looked for first.
  static uint64_t mix(uint64_t h) {
    h ^= h >> 32;
    h *= 0xD6E8FEB86659FD93u;
    return h ^ h >> 29;
  }

  TokenMap() = default;
  // Empty tokens are left out. Refuses the same spelling twice.
  static Result<TokenMap> build(const std::vector<std::string>& tokens);
  // Adds the token with this id, which joined the list after build().
  Status insert(int32_t id);

  int32_t find(std::string_view s) const { return find(s, hash(s)); }
  int32_t find(std::string_view s, uint64_t h) const {
    if (slots_.empty()) return -1;
    uint32_t tag = static_cast<uint32_t>(mix(h));
    size_t i = mix(h) >> shift_;
    for (size_t probes = 0; probes <= longest_; ++probes, i = (i + 1) & mask_) {
      const Slot& slot = slots_[i];
      if (slot.id < 0) return -1;
      if (slot.tag != tag) continue;
      const std::string& token = (*tokens_)[static_cast<size_t>(slot.id)];
      if (token.size() == s.size() && std::memcmp(token.data(), s.data(), s.size()) == 0) return slot.id;
    }
    return -1;
  }
  // Many look-ups one after another wait for memory together, where each is announced in two passes before.
  void prefetch_slot(uint64_t h) const {
    if (!slots_.empty()) __builtin_prefetch(&slots_[mix(h) >> shift_]);
  }
  void prefetch_token(uint64_t h) const {
    if (slots_.empty()) return;
    const Slot& slot = slots_[mix(h) >> shift_];
    if (slot.id >= 0) __builtin_prefetch(&(*tokens_)[static_cast<size_t>(slot.id)]);
  }
  // The token spelled `left` + `right`, which have the hash h together.
  int32_t find_joined(std::string_view left, std::string_view right, uint64_t h) const {
    if (slots_.empty()) return -1;
    uint32_t tag = static_cast<uint32_t>(mix(h));
    size_t i = mix(h) >> shift_;
    for (size_t probes = 0; probes <= longest_; ++probes, i = (i + 1) & mask_) {
      const Slot& slot = slots_[i];
      if (slot.id < 0) return -1;
      if (slot.tag != tag) continue;
      const std::string& token = (*tokens_)[static_cast<size_t>(slot.id)];
      if (token.size() == left.size() + right.size() && token.starts_with(left) && token.ends_with(right))
        return slot.id;
    }
    return -1;
  }

 private:
  struct Slot {
    uint32_t tag = 0;
    int32_t id = -1;
  };
  const std::vector<std::string>* tokens_ = nullptr;
  std::vector<Slot> slots_;
  Status rebuild(size_t n_slots);
  Status insert(int32_t id, uint64_t h);
  size_t n_used_ = 0;
  size_t longest_ = 0;  // way of a token from its place: no look-up goes further, however full a table is there
  size_t mask_ = 0;
  int shift_ = 63;
};

}  // namespace ibid
