// Shared by the readers of tokenizer.json's small parts: a bounded parse, and typed access to an object with a "type".
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>

#include "base/json.h"
#include "base/quoted.h"
#include "base/result.h"

namespace ibid::json_parts {

inline constexpr size_t kMaxSteps = 32;
// Steps after one another may make a text this many times as long at most; a file of a kilobyte could cause a factor of
// 10^12.
inline constexpr double kMaxGrowth = 64.0;
// A text to look for: a search takes the product of both lengths at worst.
inline constexpr size_t kMaxLiteralBytes = 1024;

Result<Json> parse(std::string_view text, const char* part);

// An object with a "type", and typed access to its other keys. Keeps the first error.
class Part {
 public:
  Part(const Json& value, const char* kind) : kind_(kind), object_(value.object() != nullptr ? &value : nullptr) {
    if (!object_) {
      wrong("the form of an object", {});
      return;
    }
    const Json* type = object_->find("type");
    if (!type || !type->string()) {
      wrong("a \"type\" that is a string", {});
      return;
    }
    type_ = *type->string();
  }
  std::string_view type() const { return type_; }
  const Json* get(const char* key) const {
    const Json* v = object_ ? object_->find(key) : nullptr;
    return v && !v->is_null() ? v : nullptr;
  }
  bool flag(const char* key, bool missing) {
    const Json* v = get(key);
    if (!v) return missing;
    if (!v->boolean()) return wrong("true or false", key), missing;
    return *v->boolean();
  }
  std::string text(const char* key, std::string_view missing) {
    const Json* v = get(key);
    if (!v) return std::string(missing);
    if (!v->string()) return wrong("a string", key), std::string(missing);
    return *v->string();
  }
  size_t count(const char* key) {
    const Json* v = get(key);
    if (!v) return 0;
    if (!v->integer() || *v->integer() < 0) return wrong("a whole number, not negative", key), 0;
    return static_cast<size_t>(*v->integer());
  }
  // Elements of the sequence under the first of the keys that is there.
  const Json::Array* elements(std::initializer_list<const char*> keys) {
    for (const char* key : keys) {
      const Json* v = get(key);
      if (v && v->array()) return v->array();
    }
    wrong("an array", *keys.begin());
    return nullptr;
  }
  void wrong(std::string_view expected, std::string_view key) {
    if (error_) return;
    std::string what = key.empty() ? std::string() : " under " + in_quotes(key);
    error_ = invalid(std::string("the ") + kind_ + (type_.empty() ? "" : " " + in_quotes(type_)) +
                         " is expected to have " + std::string(expected) + what,
                     kind_);
  }
  // For a step that makes its input up to `times` as long: refuses if the product with the earlier steps is too large.
  void grow(double times, double& growth) {
    growth *= std::max(1.0, times);
    if (growth > kMaxGrowth && !error_) {
      error_ = unsupported(std::string("the ") + kind_ + " could make a text more than " +
                               std::to_string(static_cast<int>(kMaxGrowth)) + " times as long; that is refused",
                           kind_);
    }
  }
  // A text that is looked for.
  void check_literal(const std::string& literal) {
    if (literal.size() <= kMaxLiteralBytes || error_) return;
    error_ = unsupported(std::string("the ") + kind_ + " " + in_quotes(type_) + " looks for a text of " +
                             std::to_string(literal.size()) + " bytes; at most " + std::to_string(kMaxLiteralBytes) +
                             " are read",
                         kind_);
  }
  Error unknown() const {
    return unsupported(std::string("the ") + kind_ + " " + in_quotes(type_) + " is not supported", kind_);
  }
  Status status() const { return error_ ? Status(*error_) : Status(); }

 private:
  const char* kind_;
  const Json* object_ = nullptr;
  std::string_view type_;
  std::optional<Error> error_;
};

// {"String": "..."} or {"Regex": "..."}.
struct PatternText {
  bool regex = false;
  std::string text;
};
PatternText read_pattern(Part& part);

// How many times as long a text of nothing but `pattern` becomes.
inline double growth_of_replace(const std::string& pattern, const std::string& content) {
  return pattern.empty() ? 1.0 : static_cast<double>(content.size()) / static_cast<double>(pattern.size());
}

}  // namespace ibid::json_parts
