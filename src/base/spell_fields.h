// spell_fields: a value with all its fields as bytes that differ for any two different values of its type, for cache
// keys and digests. The compiler finds the fields (Boost.PFR), so that a field added to a struct is in the key without
// further code. Takes integers, enums, strings, lists and plain structs of these; other types do not compile, because
// equal pointers or floats need not have equal bytes.
#pragma once

#include <boost/pfr/core.hpp>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>

namespace ibid {

template <typename T>
void spell_fields(const T& value, std::string& out) {
  if constexpr (std::is_integral_v<T> || std::is_enum_v<T>) {
    // Most are small: seven bits a byte.
    auto left = static_cast<uint64_t>(value);
    for (; left >= 0x80; left >>= 7) out += static_cast<char>(left | 0x80);
    out += static_cast<char>(left);
  } else if constexpr (std::is_convertible_v<const T&, std::string_view>) {
    const std::string_view text = value;
    spell_fields(text.size(), out);
    out += text;
  } else if constexpr (requires { value.size(), value.begin(), value.end(); }) {
    spell_fields(value.size(), out);
    for (const auto& item : value) spell_fields(item, out);
  } else {
    static_assert(std::is_aggregate_v<T>, "no key can be made of this");
    boost::pfr::for_each_field(value, [&out](const auto& field) { spell_fields(field, out); });
  }
}

template <typename T>
std::string spell_fields(const T& value) {
  std::string out;
  spell_fields(value, out);
  return out;
}

}  // namespace ibid
