// JSON as a plain tree, for the small files beside weights (headers, configurations, indices). Strict RFC 8259, UTF-8
// checked, keys unique in their object; doubles are correctly rounded.
//
// Bounded, because such files are bytes from outside: size, depth, number of values and thereby memory (under 100
// bytes a value besides the strings) have limits, and time is linear.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/result.h"

namespace ibid {

struct JsonMember;

struct JsonValue {
  using Array = std::vector<JsonValue>;
  using Object = std::vector<JsonMember>;  // in the order of the text
  // std::monostate is null. An integer is int64_t where it fits and uint64_t otherwise; larger ones are doubles.
  std::variant<std::monostate, bool, int64_t, uint64_t, double, std::string, Array, Object> value;

  bool is_null() const { return value.index() == 0; }
  const std::string* string() const { return std::get_if<std::string>(&value); }
  const Array* array() const { return std::get_if<Array>(&value); }
  const Object* object() const { return std::get_if<Object>(&value); }
  const int64_t* integer() const { return std::get_if<int64_t>(&value); }
  // A member of an object by key, in linear time; null where there is none or this is no object.
  const JsonValue* find(std::string_view key) const;
  // "an object", "a string", ...: for sentences.
  std::string_view kind() const;
};

struct JsonMember {
  std::string key;
  JsonValue value;
};

struct JsonLimits {
  size_t max_bytes = 16 << 20;  // of the text
  size_t max_depth = 64;
  size_t max_values = 250'000;
};

// The one value in `text`. Errors say line and column; `where` names the file for them.
Result<JsonValue> parse_json(std::string_view text, std::string_view where, const JsonLimits& limits = {});

}  // namespace ibid
