// The types of a KV cache's keys and of its values, which may differ: keys decide which positions are read, and bear
// fewer bits less well than values do.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "tensor/dtype.h"

namespace ibid {

// What an element is: a float, or a code (kernels/kv_codes.h): an integer or E4M3 of eight bits with a scale for each
// token and head, or an integer of four bits with a scale and a zero for each 32 elements of a head that was turned.
enum class KvType : uint8_t { kF32, kF16, kBF16, kI8, kI4, kF8 };
inline constexpr int kKvTypeCount = 6;

std::string_view kv_type_name(KvType type);  // "F16"
int kv_type_bits(KvType type);               // of an element, without scales
inline bool has_one_scale(KvType type) { return type == KvType::kI8 || type == KvType::kF8; }
inline bool is_code(KvType type) { return has_one_scale(type) || type == KvType::kI4; }

struct KvTypes {
  KvType key = KvType::kF16;
  KvType value = KvType::kF16;

  constexpr KvTypes() = default;
  constexpr KvTypes(KvType of_keys, KvType of_values) : key(of_keys), value(of_values) {}
  constexpr KvTypes(KvType both) : KvTypes(both, both) {}  // NOLINT: a type is both
  KvTypes(DType both);                                     // NOLINT. CHECKs F32, F16, BF16 or I8

  bool operator==(const KvTypes&) const = default;
  // "F16", or keys and values "I8:I4".
  std::string name() const;
};

// Reads name() in any letter case, "i8i4" for "i8:i4", and "fp8" and "fp8_e4m3" (vLLM's names) for "f8"; none of
// anything else.
std::optional<KvTypes> kv_types_from_name(std::string_view name);
// What kv_types_from_name() reads, as errors and helps list it.
inline constexpr std::string_view kKvTypeNames =
    "f32, f16, bf16, f8, i8, i8i4, i4, or one of keys and one of values as f16:i8";

}  // namespace ibid
