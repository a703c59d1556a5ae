// JsonWriter: JSON as text, written as it goes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/json.h"

namespace ibid {

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
