// Distinct integer types for the things that must never be mixed up (docs/design.md section 2).
#pragma once

#include <cstdint>
#include <type_traits>

namespace ibid {

enum class TokenId : int32_t { kNone = -1 };
enum class BlockId : int32_t { kNone = -1 };
enum class SeqId : int64_t { kNone = -1 };

// The integer of an id, for indexing and printing.
template <typename Id>
requires std::is_enum_v<Id>
constexpr auto raw(Id id) { return static_cast<std::underlying_type_t<Id>>(id); }

}  // namespace ibid
