#include "cache/durable_key.h"

#include <bit>
#include <cstddef>
#include <cstdint>

namespace ibid {
namespace {

static_assert(std::endian::native == std::endian::little, "tokens are hashed as they lie");

constexpr std::byte kOfScope{'S'}, kOfBlock{'B'}, kOfState{'T'};

std::span<const std::byte> bytes_of(const auto& items) { return std::as_bytes(std::span(items)); }

}  // namespace

DurableKey durable_key_of_scope(std::string_view layout, std::string_view spelled) {
  const uint64_t len[] = {layout.size()};  // so that no two pairs are one sequence
  return sha256({{&kOfScope, 1}, bytes_of(len), bytes_of(layout), bytes_of(spelled)});
}

DurableKey durable_key_of_block(const DurableKey& parent, std::span<const TokenId> tokens) {
  return sha256({{&kOfBlock, 1}, bytes_of(parent), bytes_of(tokens)});
}

DurableKey durable_key_of_state(const DurableKey& parent, std::span<const TokenId> tokens) {
  return sha256({{&kOfState, 1}, bytes_of(parent), bytes_of(tokens)});
}

}  // namespace ibid
