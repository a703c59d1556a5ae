#include "cache/prefix_hash.h"

#include <xxhash.h>

#include <cstring>
#include <random>

#include "base/check.h"

namespace ibid {
namespace {

constexpr size_t kMaxTokens = 1024;

uint64_t mask_of(int n_bits) {
  if (n_bits <= 0) return 0;
  return n_bits >= 64 ? ~uint64_t{0} : (uint64_t{1} << n_bits) - 1;
}

}  // namespace

PrefixHash::PrefixHash(int n_bits, uint64_t seed) : low_mask_(mask_of(n_bits)), high_mask_(mask_of(n_bits - 64)) {
  std::random_device device;
  std::mt19937_64 from_seed(seed);
  for (unsigned char& byte : key_) byte = static_cast<unsigned char>(seed == 0 ? device() : from_seed() >> 32);
}

PrefixHash::PrefixHash(const Key& key) : low_mask_(~uint64_t{0}), high_mask_(~uint64_t{0}), key_(key) {}

PrefixHash::Value PrefixHash::cut(uint64_t low, uint64_t high) const { return {low & low_mask_, high & high_mask_}; }

PrefixHash::Value PrefixHash::of_scope(std::string_view spelled) const {
  const XXH128_hash_t h = XXH3_128bits_withSecret(spelled.data(), spelled.size(), key_.data(), key_.size());
  return cut(h.low64, h.high64);
}

PrefixHash::Value PrefixHash::of_block(const Value& parent, std::span<const TokenId> tokens) const {
  CHECK(tokens.size() <= kMaxTokens);
  unsigned char bytes[sizeof(Value) + kMaxTokens * sizeof(TokenId)];
  std::memcpy(bytes, &parent, sizeof parent);
  std::memcpy(bytes + sizeof parent, tokens.data(), tokens.size_bytes());
  const XXH128_hash_t h = XXH3_128bits_withSecret(bytes, sizeof parent + tokens.size_bytes(), key_.data(), key_.size());
  return cut(h.low64, h.high64);
}

}  // namespace ibid
