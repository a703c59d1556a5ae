#include "kernels/kv_types.h"

#include <algorithm>
#include <cctype>

#include "base/check.h"

namespace ibid {
namespace {

struct Traits {
  std::string_view name;
  int bits;
};
constexpr Traits kTraits[kKvTypeCount] = {{"F32", 32}, {"F16", 16}, {"BF16", 16}, {"I8", 8}, {"I4", 4}, {"F8", 8}};

bool same(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](char x, char y) {
    return std::toupper(static_cast<unsigned char>(x)) == std::toupper(static_cast<unsigned char>(y));
  });
}

std::optional<KvType> type_from_name(std::string_view name) {
  for (int i = 0; i < kKvTypeCount; ++i) {
    if (same(name, kTraits[i].name)) return static_cast<KvType>(i);
  }
  if (same(name, "fp8") || same(name, "fp8_e4m3")) return KvType::kF8;
  return std::nullopt;
}

KvType type_of(DType dtype) {
  const auto type = type_from_name(traits(dtype).name);
  CHECK(type.has_value(), "a type that caches have");
  return *type;
}

}  // namespace

std::string_view kv_type_name(KvType type) { return kTraits[static_cast<size_t>(type)].name; }
int kv_type_bits(KvType type) { return kTraits[static_cast<size_t>(type)].bits; }

KvTypes::KvTypes(DType both) : KvTypes(type_of(both)) {}

std::string KvTypes::name() const {
  std::string text(kv_type_name(key));
  if (value != key) text += ":" + std::string(kv_type_name(value));
  return text;
}

std::optional<KvTypes> kv_types_from_name(std::string_view name) {
  if (same(name, "I8I4")) return KvTypes(KvType::kI8, KvType::kI4);
  const size_t colon = name.find(':');
  const auto key = type_from_name(name.substr(0, colon));
  const auto value = colon == std::string_view::npos ? key : type_from_name(name.substr(colon + 1));
  if (!key || !value) return std::nullopt;
  return KvTypes(*key, *value);
}

}  // namespace ibid
