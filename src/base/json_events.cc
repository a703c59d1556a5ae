#include "base/json_events.h"

#include <boost/json/basic_parser_impl.hpp>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <utility>

namespace ibid {
namespace {

// Boost's events come in parts; ours whole.
struct Handler {
  using Code = boost::json::error_code;
  using Part = boost::json::string_view;
  static constexpr size_t max_object_size = static_cast<size_t>(-1);
  static constexpr size_t max_array_size = static_cast<size_t>(-1);
  static constexpr size_t max_key_size = static_cast<size_t>(-1);
  static constexpr size_t max_string_size = static_cast<size_t>(-1);

  explicit Handler(JsonEvents& to) : events(to) {}
  JsonEvents& events;
  std::string text;  // the string, key or number being read

  static bool go_on(bool yes, Code& code) {
    if (!yes) code = boost::json::error::exception;
    return yes;
  }
  bool append(Part part) {
    text.append(part.data(), part.size());
    return true;
  }
  std::string whole(Part part) {
    append(part);
    return std::exchange(text, {});
  }

  bool on_document_begin(Code&) { return true; }
  bool on_document_end(Code&) { return true; }
  bool on_object_begin(Code& code) { return go_on(events.begin_object(), code); }
  bool on_object_end(size_t, Code& code) { return go_on(events.end_object(), code); }
  bool on_array_begin(Code& code) { return go_on(events.begin_array(), code); }
  bool on_array_end(size_t, Code& code) { return go_on(events.end_array(), code); }
  bool on_key_part(Part part, size_t, Code&) { return append(part); }
  bool on_key(Part part, size_t, Code& code) { return go_on(events.key(whole(part)), code); }
  bool on_string_part(Part part, size_t, Code&) { return append(part); }
  bool on_string(Part part, size_t, Code& code) { return go_on(events.string(whole(part)), code); }
  bool on_number_part(Part part, Code&) { return append(part); }
  bool on_int64(int64_t value, Part, Code& code) {
    text.clear();
    return go_on(events.integer(value), code);
  }
  bool on_uint64(uint64_t, Part part, Code& code) { return go_on(events.number(whole(part)), code); }
  // The parser's own value may be a unit off in the last place.
  bool on_double(double, Part part, Code& code) { return go_on(events.number(whole(part)), code); }
  bool on_bool(bool value, Code& code) { return go_on(events.boolean(value), code); }
  bool on_null(Code& code) { return go_on(events.null(), code); }
  bool on_comment_part(Part, Code&) { return true; }
  bool on_comment(Part, Code&) { return true; }
};

}  // namespace

std::optional<JsonFault> read_json(std::string_view text, size_t max_depth, JsonEvents& events) {
  using boost::json::error;
  boost::json::parse_options options;
  options.max_depth = max_depth;
  boost::json::basic_parser<Handler> parser(options, events);
  boost::json::error_code code;
  JsonFault fault;
  fault.at = parser.write_some(false, text.data(), text.size(), code);
  if (!code && fault.at < text.size()) code = error::extra_data;
  if (!code) return std::nullopt;
  if (code == error::exception) {
    fault.kind = JsonFault::Kind::kStopped;
    return fault;
  }
  if (code == error::too_deep) fault.kind = JsonFault::Kind::kTooDeep;
  if (code == error::extra_data) fault.kind = JsonFault::Kind::kGoesOn;
  fault.message = code.message();
  return fault;
}

bool to_double(const std::string& number, double& out) {
  const char* end = number.data() + number.size();
  const auto [stop, status] = std::from_chars(number.data(), end, out);
  if (status == std::errc() && stop == end) return true;
  out = std::strtod(number.c_str(), nullptr);  // from_chars gives no zero for what is too small
  return std::isfinite(out);
}

}  // namespace ibid
