// What the readers of tokenizer.json's small parts share: a bounded parse, and typed looks at an object with a "type".
#pragma once

#include <boost/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace ibid::json_parts {

namespace json = boost::json;
inline constexpr size_t kMaxSteps = 32;

std::string shown(std::string_view s);
Result<json::value> parse(std::string_view text, const char* part);

// An object with a "type", and typed looks at its other keys. The first wrong one is remembered.
class Part {
 public:
  Part(const json::value& value, const char* kind) : kind_(kind), object_(value.if_object()) {
    if (!object_) {
      wrong("the form of an object", {});
      return;
    }
    const json::value* type = object_->if_contains("type");
    if (!type || !type->is_string()) {
      wrong("a \"type\" that is a string", {});
      return;
    }
    type_ = std::string_view(type->get_string());
  }
  std::string_view type() const { return type_; }
  const json::value* get(const char* key) const {
    const json::value* v = object_ ? object_->if_contains(key) : nullptr;
    return v && !v->is_null() ? v : nullptr;
  }
  bool flag(const char* key, bool missing) {
    const json::value* v = get(key);
    if (!v) return missing;
    if (!v->is_bool()) return wrong("true or false", key), missing;
    return v->get_bool();
  }
  std::string text(const char* key, std::string_view missing) {
    const json::value* v = get(key);
    if (!v) return std::string(missing);
    if (!v->is_string()) return wrong("a string", key), std::string(missing);
    return std::string(std::string_view(v->get_string()));
  }
  size_t count(const char* key) {
    const json::value* v = get(key);
    if (!v) return 0;
    if (!v->is_int64() || v->get_int64() < 0) return wrong("a whole number, not negative", key), 0;
    return static_cast<size_t>(v->get_int64());
  }
  // Elements of the sequence under the first of the keys that is there.
  const json::array* elements(std::initializer_list<const char*> keys) {
    for (const char* key : keys) {
      const json::value* v = get(key);
      if (v && v->is_array()) return &v->get_array();
    }
    wrong("an array", *keys.begin());
    return nullptr;
  }
  void wrong(std::string_view expected, std::string_view key) {
    if (error_) return;
    std::string what = key.empty() ? std::string() : " under " + shown(key);
    error_ = invalid(std::string("the ") + kind_ + (type_.empty() ? "" : " " + shown(type_)) + " is expected to have " +
                         std::string(expected) + what,
                     kind_);
  }
  Error unknown() const {
    return unsupported(std::string("the ") + kind_ + " " + shown(type_) + " is not supported", kind_);
  }
  Status status() const { return error_ ? Status(*error_) : Status(); }

 private:
  const char* kind_;
  const json::object* object_ = nullptr;
  std::string_view type_;
  std::optional<Error> error_;
};

// {"String": "..."} or {"Regex": "..."}.
struct PatternText {
  bool regex = false;
  std::string text;
};
PatternText read_pattern(Part& part);

}  // namespace ibid::json_parts
