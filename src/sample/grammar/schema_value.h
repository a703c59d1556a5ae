// Value: a JSON text as schemas need it: numbers exactly as they are spelled, members in their order.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "sample/grammar/fuel.h"

namespace ibid::grammar {

// A decimal number, exactly: (-1)^is_negative digits x 10^exponent, the digits without zeros at either end; zero has
// none.
struct Decimal {
  bool is_negative = false;
  std::string digits = {};
  int64_t exponent = 0;

  static constexpr int64_t kMaxExponent = 400;  // larger ones are refused where exactness is needed
  static Decimal of(std::string_view json_number);
  bool is_zero() const { return digits.empty(); }
  bool is_integer() const { return exponent >= 0 || is_zero(); }
  bool is_huge() const;
  int compare(const Decimal& other) const;          // -1, 0 or 1
  bool is_multiple_of(const Decimal& other) const;  // other > 0; neither is huge
  std::string whole() const;                        // digits before the point, "0" where there are none; no sign
  std::string fraction() const;                     // after it
  std::string text() const;                         // without an exponent
};

struct Value {
  enum class Kind : uint8_t { kNull, kFalse, kTrue, kNumber, kString, kArray, kObject };
  Kind kind = Kind::kNull;
  std::string text = {};  // of a number as spelled, of a string
  std::vector<Value> items = {};
  std::vector<std::pair<std::string, Value>> members = {};
  uint32_t place = 0;     // in its document, by the text, from 1; not part of the value
  uint32_t n_values = 1;  // the number of values in it, with itself
  uint32_t n_bytes = 0;   // of their texts
  bool is_plain = false;  // an integer without an exponent: no other such text is the same number

  bool is(Kind k) const { return kind == k; }
  bool is_object() const { return kind == Kind::kObject; }
  const Value* find(std::string_view key) const;
  // Its items, or itself if it is not a list.
  std::span<const Value> as_list() const { return is(Kind::kArray) ? std::span(items) : std::span(this, 1); }
  Decimal number() const { return Decimal::of(text); }
  bool operator==(const Value& other) const;  // as JSON Schema has it: 1 is 1.0, members have no order
};

// Steps of fuel that a == b takes, beyond a fraction of one.
int64_t cost_of_comparing(const Value& a, const Value& b);

// Its memory is added to `held`.
Result<Value> read_value(std::string_view json, Fuel& fuel, Held& held);

// The text as the inside of a JSON string, in the spelling of CodeDfa::Spelling::kJson.
std::string json_spelling(std::string_view text);

}  // namespace ibid::grammar
