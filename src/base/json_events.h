// JSON as events, in the order of the text, on Boost.JSON's parser: the one reader under the tree (base/json.h) and
// under every value of another kind that is made of JSON. Strict RFC 8259, UTF-8 checked, depth bounded, time linear.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace ibid {

// What a text holds. A function that gives false ends the reading.
class JsonEvents {
 public:
  virtual ~JsonEvents() = default;
  virtual bool begin_object() { return true; }
  virtual bool end_object() { return true; }
  virtual bool begin_array() { return true; }
  virtual bool end_array() { return true; }
  virtual bool key(std::string) { return true; }
  virtual bool string(std::string) { return true; }
  virtual bool integer(int64_t) { return true; }
  virtual bool number(std::string) { return true; }  // as it is spelled: what has a fraction or does not fit above
  virtual bool boolean(bool) { return true; }
  virtual bool null() { return true; }
};

struct JsonFault {
  enum class Kind {
    kSyntax,
    kTooDeep,
    kGoesOn,   // something follows the value
    kStopped,  // by an event
  };
  Kind kind = Kind::kSyntax;
  size_t at = 0;        // the byte where the reading ended
  std::string message;  // fixed words, nothing of the text; empty where an event stopped
};

// Nothing where `text` is one JSON value and every event was delivered.
std::optional<JsonFault> read_json(std::string_view text, size_t max_depth, JsonEvents& events);

// The double nearest to a number of JSON; false where it is beyond the range of a double.
bool to_double(const std::string& number, double& out);

}  // namespace ibid
