// PrefixHash: the keyed 128-bit hash of a prefix, chained from block to block: hash(parent's hash, tokens). XXH3 with a
// secret key, so that no outsider can aim at collisions: of this process, or kept with blocks that outlive it. It is
// an index, never a proof of equality.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

#include "base/ids.h"

namespace ibid {

class PrefixHash {
 public:
  struct Value {
    uint64_t low = 0;
    uint64_t high = 0;
    bool operator==(const Value&) const = default;
  };

  using Key = std::array<unsigned char, 192>;

  // n_bits < 128 cuts the value, so that tests see collisions. seed 0: a random key.
  explicit PrefixHash(int n_bits = 128, uint64_t seed = 0);
  // With a key that was kept: the same values as the hash that it was taken from.
  explicit PrefixHash(const Key& key);
  const Key& key() const { return key_; }

  Value of_scope(std::string_view spelled) const;
  Value of_block(const Value& parent, std::span<const TokenId> tokens) const;

 private:
  Value cut(uint64_t low, uint64_t high) const;

  uint64_t low_mask_;
  uint64_t high_mask_;
  Key key_;
};

}  // namespace ibid
