// Tier: where the bytes of a block lie within the process. Each tier has a pool of blocks of its own; a tier without
// blocks does not exist. Sequences read and write the device's blocks only; what lies elsewhere is brought up first.
// What outlives the process is no tier: it is found by a key, not by a node (durable_index.h).
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/ids.h"

namespace ibid {

enum class Tier : uint8_t { kDevice, kHost };
inline constexpr size_t kTiers = 2;
inline constexpr Tier kAllTiers[kTiers] = {Tier::kDevice, Tier::kHost};
constexpr size_t raw_tier(Tier tier) { return static_cast<size_t>(tier); }

// A node of the prefix tree: a prefix of some sequence, wherever its bytes lie.
enum class NodeId : int32_t { kNone = -1 };

// Copy the whole block; which of its slots hold something is the reader's business.
struct BlockCopy {
  BlockId from = BlockId::kNone;
  BlockId to = BlockId::kNone;
  Tier from_tier = Tier::kDevice;
  Tier to_tier = Tier::kDevice;
  bool operator==(const BlockCopy&) const = default;
};

}  // namespace ibid
