// Json: a value read from a request's body, and JsonWriter, which writes answers. Reading is strict and bounded: the
// grammar of RFC 8259 and nothing more, no duplicate keys, no number that a double cannot hold, no invalid UTF-8, a
// depth and a number of values that are given. Errors name the place ("messages[2].content").
#pragma once

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
  const std::string* string() const { return std::get_if<std::string>(&value_); }
  const Array* array() const { return std::get_if<Array>(&value_); }
  const Object* object() const { return std::get_if<Object>(&value_); }
  Array* array() { return std::get_if<Array>(&value_); }
  Object* object() { return std::get_if<Object>(&value_); }
  double number() const;                         // of a number of any kind
  const Json* find(std::string_view key) const;  // null if there is none, or this is no object
  const char* kind() const;                      // "a string", "an object", ... for error texts
  std::string text() const;                      // as JSON

 private:
  std::variant<std::monostate, bool, int64_t, uint64_t, double, std::string, Array, Object> value_;
};

struct BodyLimits {
  int max_depth = 32;
  size_t max_values = 400'000;
};

// A byte order mark before it is skipped. `where` of the error is the place in the text.
Result<Json> parse_json(std::string_view text, const BodyLimits& limits = {});

// Appends JSON to a string; commas are its business. Strings must be UTF-8.
class JsonWriter {
 public:
  explicit JsonWriter(std::string& out) : out_(out) {}
  JsonWriter& begin_object() { return open('{'); }
  JsonWriter& end_object() { return close('}'); }
  JsonWriter& begin_array() { return open('['); }
  JsonWriter& end_array() { return close(']'); }
  JsonWriter& key(std::string_view name);
  JsonWriter& string(std::string_view value);
  JsonWriter& integer(int64_t value);
  JsonWriter& large_integer(uint64_t value);
  JsonWriter& number(double value, int precision = 0);  // 0: as many digits as give the value back; no NaN or infinity
  JsonWriter& single(float value);                      // digits that give the float back
  JsonWriter& boolean(bool value) { return raw(value ? "true" : "false"); }
  JsonWriter& null() { return raw("null"); }
  JsonWriter& raw(std::string_view json);  // a value that is JSON already
  JsonWriter& value(const Json& json);

  JsonWriter& field(std::string_view name, std::string_view text) { return key(name).string(text); }
  JsonWriter& field(std::string_view name, const char* text) { return key(name).string(text); }
  JsonWriter& field(std::string_view name, int64_t n) { return key(name).integer(n); }

 private:
  JsonWriter& open(char bracket);
  JsonWriter& close(char bracket);
  void separate();

  std::string& out_;
  bool comma_ = false;
};

}  // namespace ibid
