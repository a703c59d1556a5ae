#include "base/json.h"

#include <algorithm>
#include <boost/json/basic_parser_impl.hpp>
#include <charconv>
#include <utility>

namespace ibid {
namespace {

// Builds the tree from the events of Boost.JSON's parser, whose own tree would drop repeated keys in silence.
struct TreeBuilder {
  using Code = boost::json::error_code;
  static constexpr size_t max_object_size = static_cast<size_t>(-1);
  static constexpr size_t max_array_size = static_cast<size_t>(-1);
  static constexpr size_t max_key_size = static_cast<size_t>(-1);
  static constexpr size_t max_string_size = static_cast<size_t>(-1);

  size_t max_values = 0;
  size_t n_values = 0;
  std::string problem;
  std::string text;               // the string, key or number being read
  std::vector<JsonValue> open;    // containers not yet closed
  std::vector<std::string> keys;  // the key of each open container or value inside an object
  JsonValue root;

  bool fail(std::string sentence, Code& code) {
    problem = std::move(sentence);
    code = boost::json::error::exception;
    return false;
  }
  bool add(JsonValue value, Code& code) {
    if (++n_values > max_values) return fail("it holds more than " + std::to_string(max_values) + " values", code);
    if (open.empty()) {
      root = std::move(value);
    } else if (auto* array = std::get_if<JsonValue::Array>(&open.back().value)) {
      array->push_back(std::move(value));
    } else {
      std::get<JsonValue::Object>(open.back().value).push_back({std::move(keys.back()), std::move(value)});
      keys.pop_back();
    }
    return true;
  }
  bool close(Code& code) {
    JsonValue value = std::move(open.back());
    open.pop_back();
    return add(std::move(value), code);
  }

  bool on_document_begin(Code&) { return true; }
  bool on_document_end(Code&) { return true; }
  bool on_object_begin(Code&) {
    open.push_back({JsonValue::Object{}});
    return true;
  }
  bool on_object_end(size_t, Code& code) {
    const auto& members = std::get<JsonValue::Object>(open.back().value);
    std::vector<std::string_view> sorted;
    sorted.reserve(members.size());
    for (const JsonMember& member : members) sorted.push_back(member.key);
    std::sort(sorted.begin(), sorted.end());
    auto twice = std::adjacent_find(sorted.begin(), sorted.end());
    if (twice != sorted.end()) return fail("the key \"" + std::string(twice->substr(0, 80)) + "\" occurs twice", code);
    return close(code);
  }
  bool on_array_begin(Code&) {
    open.push_back({JsonValue::Array{}});
    return true;
  }
  bool on_array_end(size_t, Code& code) { return close(code); }
  bool on_key_part(boost::json::string_view part, size_t, Code&) {
    text.append(part.data(), part.size());
    return true;
  }
  bool on_key(boost::json::string_view part, size_t, Code&) {
    text.append(part.data(), part.size());
    keys.push_back(std::exchange(text, {}));
    return true;
  }
  bool on_string_part(boost::json::string_view part, size_t n, Code& code) { return on_key_part(part, n, code); }
  bool on_string(boost::json::string_view part, size_t, Code& code) {
    text.append(part.data(), part.size());
    return add({std::exchange(text, {})}, code);
  }
  bool on_number_part(boost::json::string_view part, Code&) {
    text.append(part.data(), part.size());
    return true;
  }
  bool on_int64(int64_t value, boost::json::string_view, Code& code) {
    text.clear();
    return add({value}, code);
  }
  bool on_uint64(uint64_t value, boost::json::string_view, Code& code) {
    text.clear();
    return add({value}, code);
  }
  // The parser's own value may be a unit off in the last place.
  bool on_double(double, boost::json::string_view part, Code& code) {
    text.append(part.data(), part.size());
    double value = 0;
    auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size()) {
      return fail("the number " + text.substr(0, 40) + " is beyond the range of a double", code);
    }
    text.clear();
    return add({value}, code);
  }
  bool on_bool(bool value, Code& code) { return add({value}, code); }
  bool on_null(Code& code) { return add({}, code); }
  bool on_comment_part(boost::json::string_view, Code&) { return true; }
  bool on_comment(boost::json::string_view, Code&) { return true; }
};

std::string place(std::string_view text, size_t at) {
  size_t line = 1 + static_cast<size_t>(std::count(text.begin(), text.begin() + static_cast<ptrdiff_t>(at), '\n'));
  size_t start = text.substr(0, at).rfind('\n');
  size_t column = start == std::string_view::npos ? at + 1 : at - start;
  return "line " + std::to_string(line) + ", column " + std::to_string(column);
}

}  // namespace

const JsonValue* JsonValue::find(std::string_view key) const {
  const Object* members = object();
  if (members == nullptr) return nullptr;
  for (const JsonMember& member : *members) {
    if (member.key == key) return &member.value;
  }
  return nullptr;
}

std::string_view JsonValue::kind() const {
  constexpr std::string_view kNames[] = {"null",     "a boolean", "an integer", "an integer",
                                         "a number", "a string",  "an array",   "an object"};
  return kNames[value.index()];
}

Result<JsonValue> parse_json(std::string_view text, std::string_view where, const JsonLimits& limits) {
  if (text.size() > limits.max_bytes) {
    return invalid(std::string(where) + " has " + std::to_string(text.size()) + " bytes of JSON; " +
                       std::to_string(limits.max_bytes) + " are the most",
                   std::string(where));
  }
  boost::json::parse_options options;
  options.max_depth = limits.max_depth;
  boost::json::basic_parser<TreeBuilder> parser(options);
  parser.handler().max_values = limits.max_values;
  boost::json::error_code code;
  size_t n = parser.write_some(false, text.data(), text.size(), code);
  if (!code && n < text.size()) code = boost::json::error::extra_data;
  if (code) {
    const std::string& problem = parser.handler().problem;
    return invalid(std::string(where) + ": no valid JSON at " + place(text, std::min(n, text.size())) + ": " +
                       (problem.empty() ? code.message() : problem),
                   std::string(where));
  }
  return std::move(parser.handler().root);
}

}  // namespace ibid
