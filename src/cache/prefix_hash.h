// PrefixHash: the keyed 128-bit hash of a prefix, chained from block to block: hash(parent's hash, tokens). XXH3 with a
// secret of this process, so that nobody outside can aim at collisions. It is an index, never a proof of equality.
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

  // n_bits < 128 cuts the value, so that tests see collisions. seed 0: a random secret.
  explicit PrefixHash(int n_bits = 128, uint64_t seed = 0);

  Value of_scope(std::string_view spelled) const;
  Value of_block(const Value& parent, std::span<const TokenId> tokens) const;

 private:
  Value cut(uint64_t low, uint64_t high) const;

  uint64_t low_mask_;
  uint64_t high_mask_;
  std::array<unsigned char, 192> secret_;
};

}  // namespace ibid
