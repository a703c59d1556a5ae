// Json: a JSON text as a tree, and back as text (base/json_writer.h). Strict RFC 8259, UTF-8 checked, no key twice in
// an object; numbers that are no integers of 64 bits are the nearest double.
//
// Bounded, because files and bodies are bytes from outside: size, depth, number of values and thereby memory (under 100
// bytes a value besides the strings) have limits, and time is linear but for the sorting of keys.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/result.h"

namespace ibid {

class Json {
 public:
  using Array = std::vector<Json>;
  using Member = std::pair<std::string, Json>;
  using Object = std::vector<Member>;  // in the order of the text

  Json() = default;  // null
  explicit Json(bool value) : value_(value) {}
  explicit Json(int64_t value) : value_(value) {}
  explicit Json(uint64_t value) : value_(value) {}  // only for what int64_t cannot hold
  explicit Json(double value) : value_(value) {}
  explicit Json(std::string value) : value_(std::move(value)) {}
  explicit Json(Array value) : value_(std::move(value)) {}
  explicit Json(Object value) : value_(std::move(value)) {}

  bool is_null() const { return value_.index() == 0; }
  bool is_number() const { return value_.index() >= 2 && value_.index() <= 4; }
  const bool* boolean() const { return std::get_if<bool>(&value_); }
  const int64_t* integer() const { return std::get_if<int64_t>(&value_); }
  const uint64_t* large_integer() const { return std::get_if<uint64_t>(&value_); }
  const double* real() const { return std::get_if<double>(&value_); }
  const std::string* string() const { return std::get_if<std::string>(&value_); }
  const Array* array() const { return std::get_if<Array>(&value_); }
  const Object* object() const { return std::get_if<Object>(&value_); }
  Array* array() { return std::get_if<Array>(&value_); }
  Object* object() { return std::get_if<Object>(&value_); }
  double number() const;  // of a number of any kind
  // A member by its key, in linear time; null if there is none, or this is no object.
  const Json* find(std::string_view key) const;
  const char* kind() const;  // "a string", "an object", ... for sentences
  std::string text() const;  // as JSON

 private:
  std::variant<std::monostate, bool, int64_t, uint64_t, double, std::string, Array, Object> value_;
};

struct JsonLimits {
  size_t max_bytes = 16 << 20;  // of the text
  size_t max_depth = 64;
  size_t max_values = 250'000;
  size_t max_keys = static_cast<size_t>(-1);  // of one object
  // Of equal keys in an object the last one counts, as Python reads them; else they are an error.
  bool last_key_counts = false;
};

// What is wrong with a text, for a sentence.
struct JsonError {
  enum class Kind { kTooLong, kSyntax, kGoesOn, kTwice, kLimit };
  Kind kind = Kind::kSyntax;
  std::string what;  // half a sentence, with no more of the text than a key or a number
  std::string key;   // kTwice: which, in quotes
  size_t at = 0;     // the byte where the reading ended
  std::string path;  // of the value being read: "messages[2].content"; empty at the top
};

// The one value in `text`, or what is wrong with it.
std::variant<Json, JsonError> read_tree(std::string_view text, const JsonLimits& limits);

// The same for a file, which `where` names: errors state line and column.
Result<Json> parse_json(std::string_view text, std::string_view where = "the text", const JsonLimits& limits = {});

}  // namespace ibid
