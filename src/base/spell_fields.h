// spell_fields: a value with all its fields as bytes that tell any two values of its type apart, for keys of caches
// and for digests. The fields are found by the compiler (Boost.PFR): one that is added to a struct is in the key
// without anybody thinking of it. Of integers, enums, texts, lists and plain structs of these; of anything else it does
// not compile, as pointers and floats have no bytes that mean the same wherever they are equal.
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
