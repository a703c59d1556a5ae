// SchemaCheck: whether a JSON value is valid by a JSON Schema (2020-12, and older drafts as far as they spell it
// otherwise). `format` is an annotation; an unresolved reference and an unknown keyword allow every value.
// Steps and depth have limits; a value that exceeds them is not valid.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/json.h"

namespace ibid {

class SchemaCheck {
 public:
  enum class How : uint8_t {
    kExact,
    // By the kind of the value alone: numbers have no bounds, strings no pattern, objects and arrays no inside.
    kKind,
  };
  // `root` is what references are relative to, and outlives this.
  explicit SchemaCheck(const Json& root, How how = How::kExact) : root_(root), how_(how) {}

  bool accepts(const Json& schema, const Json& value);
  // Whether every string is valid, as far as the schema shows without a value.
  bool accepts_any_string(const Json& schema);
  // The schema that a reference names; null: none here.
  const Json* target(const Json& reference) const;

 private:
  static constexpr int64_t kMaxSteps = 200'000;
  static constexpr int kMaxDepth = 100;

  bool take(int64_t steps) { return (n_steps_ += steps) <= kMaxSteps; }
  bool has_type(const Json& schema, const Json& value) const;
  bool check_logic(const Json::Object& schema, const Json& value);
  bool check_number(const Json::Object& schema, double value) const;
  bool check_string(const Json::Object& schema, const std::string& value);
  bool check_array(const Json::Object& schema, const Json::Array& value);
  bool check_object(const Json::Object& schema, const Json::Object& value);
  bool matches(const Json& pattern, std::string_view text);
  bool equals(const Json& a, const Json& b);

  const Json& root_;
  How how_;
  int64_t n_steps_ = 0;
  int depth_ = 0;
};

}  // namespace ibid
