#include "server/json.h"

#include <boost/json/basic_parser_impl.hpp>
#include <charconv>
#include <cmath>

namespace ibid {

double Json::number() const {
  if (const auto* i = std::get_if<int64_t>(&value_)) return static_cast<double>(*i);
  if (const auto* u = std::get_if<uint64_t>(&value_)) return static_cast<double>(*u);
  if (const auto* d = std::get_if<double>(&value_)) return *d;
  return 0;
}

const Json* Json::find(std::string_view key) const {
  if (const Object* members = object()) {
    for (const Member& member : *members) {
      if (member.first == key) return &member.second;
    }
  }
  return nullptr;
}

const char* Json::kind() const {
  static constexpr const char* kNames[] = {"null",     "a boolean", "an integer", "an integer",
                                           "a number", "a string",  "an array",   "an object"};
  return kNames[value_.index()];
}

std::string Json::text() const {
  std::string out;
  JsonWriter(out).value(*this);
  return out;
}

namespace {

using boost::json::error_code;

// What boost's parser calls; builds the value and knows where in it the parser stands.
class Builder {
 public:
  static constexpr std::size_t max_object_size = static_cast<std::size_t>(-1);
  static constexpr std::size_t max_array_size = static_cast<std::size_t>(-1);
  static constexpr std::size_t max_key_size = static_cast<std::size_t>(-1);
  static constexpr std::size_t max_string_size = static_cast<std::size_t>(-1);

  explicit Builder(const BodyLimits& limits) : limits_(limits) {}

  bool on_document_begin(error_code&) { return true; }
  bool on_document_end(error_code&) { return true; }
  bool on_object_begin(error_code& ec) { return open(Json(Json::Object()), ec); }
  bool on_array_begin(error_code& ec) { return open(Json(Json::Array()), ec); }
  bool on_object_end(std::size_t, error_code& ec) { return close(ec); }
  bool on_array_end(std::size_t, error_code& ec) { return close(ec); }
  bool on_key_part(boost::json::string_view s, std::size_t, error_code&) { return append(s); }
  bool on_key(boost::json::string_view s, std::size_t, error_code& ec) {
    append(s);
    std::string key = std::exchange(text_, {});
    if (keys_.size() < stack_.size()) keys_.resize(stack_.size());
    if (stack_.back().find(key) != nullptr) return stop("the key \"" + key + "\" stands there twice", ec);
    // A look-up per key is quadratic in the keys of one object; so many are no request of ours.
    if (stack_.back().object()->size() >= kMaxKeys) return stop("an object has more than 10000 keys", ec);
    keys_.back() = std::move(key);
    return true;
  }
  bool on_string_part(boost::json::string_view s, std::size_t, error_code&) { return append(s); }
  bool on_string(boost::json::string_view s, std::size_t, error_code& ec) {
    append(s);
    return add(Json(std::exchange(text_, {})), ec);
  }
  bool on_number_part(boost::json::string_view, error_code&) { return true; }
  bool on_int64(int64_t i, boost::json::string_view, error_code& ec) { return add(Json(i), ec); }
  bool on_uint64(uint64_t u, boost::json::string_view, error_code& ec) { return add(Json(u), ec); }
  bool on_double(double d, boost::json::string_view, error_code& ec) {
    if (!std::isfinite(d)) return stop("a number is too large", ec);
    return add(Json(d), ec);
  }
  bool on_bool(bool b, error_code& ec) { return add(Json(b), ec); }
  bool on_null(error_code& ec) { return add(Json(), ec); }
  bool on_comment_part(boost::json::string_view, error_code&) { return true; }
  bool on_comment(boost::json::string_view, error_code&) { return true; }

  Json take() { return std::move(root_); }
  const std::string& message() const { return message_; }

  std::string place() const {
    std::string path;
    for (size_t i = 0; i < stack_.size(); ++i) {
      if (const Json::Array* array = stack_[i].array()) {
        path += "[" + std::to_string(array->size()) + "]";
      } else if (i < keys_.size() && !keys_[i].empty()) {
        if (!path.empty()) path += ".";
        path += keys_[i].substr(0, kMaxShownKey);
      }
      if (path.size() > 200) break;
    }
    return path;
  }

 private:
  static constexpr size_t kMaxKeys = 10'000;
  static constexpr size_t kMaxShownKey = 64;

  bool append(boost::json::string_view s) {
    text_.append(s.data(), s.size());
    return true;
  }
  bool stop(std::string message, error_code& ec) {
    message_ = std::move(message);
    ec = boost::json::error::syntax;
    return false;
  }
  bool open(Json container, error_code& ec) {
    if (static_cast<int>(stack_.size()) >= limits_.max_depth) {
      return stop("values are nested deeper than " + std::to_string(limits_.max_depth), ec);
    }
    if (++n_values_ > limits_.max_values) return too_many(ec);
    stack_.push_back(std::move(container));
    keys_.emplace_back();
    return true;
  }
  bool close(error_code&) {
    Json value = std::move(stack_.back());
    stack_.pop_back();
    keys_.pop_back();
    place_value(std::move(value));
    return true;
  }
  bool add(Json value, error_code& ec) {
    if (++n_values_ > limits_.max_values) return too_many(ec);
    place_value(std::move(value));
    return true;
  }
  bool too_many(error_code& ec) {
    return stop("there are more than " + std::to_string(limits_.max_values) + " values", ec);
  }
  void place_value(Json value) {
    if (stack_.empty()) {
      root_ = std::move(value);
    } else if (Json::Array* array = stack_.back().array()) {
      array->push_back(std::move(value));
    } else {
      stack_.back().object()->emplace_back(std::move(keys_.back()), std::move(value));
      keys_.back().clear();
    }
  }

  const BodyLimits& limits_;
  Json root_;
  std::vector<Json> stack_;
  std::vector<std::string> keys_;  // one per open container; used where it is an object
  std::string text_;
  std::string message_;
  size_t n_values_ = 0;
};

}  // namespace

Result<Json> parse_json(std::string_view text, const BodyLimits& limits) {
  boost::json::parse_options options;
  options.max_depth = static_cast<std::size_t>(limits.max_depth) + 1;  // our own message comes first
  boost::json::basic_parser<Builder> parser(options, limits);
  error_code ec;
  const size_t n_skipped = text.starts_with("\xef\xbb\xbf") ? 3 : 0;
  const size_t n_read = n_skipped + parser.write_some(false, text.data() + n_skipped, text.size() - n_skipped, ec);
  const Builder& builder = parser.handler();
  if (!ec && n_read < text.size()) {
    return invalid("the body is not one JSON value: something follows it at byte " + std::to_string(n_read));
  }
  if (!ec) return parser.handler().take();
  if (!builder.message().empty()) return invalid("the body is refused: " + builder.message(), builder.place());
  // Only the part of boost's message that is made of fixed words.
  return invalid("the body is not valid JSON in UTF-8: " + ec.message() + " near byte " + std::to_string(n_read),
                 builder.place());
}

JsonWriter& JsonWriter::open(char bracket) {
  separate();
  out_ += bracket;
  comma_ = false;
  return *this;
}

JsonWriter& JsonWriter::close(char bracket) {
  out_ += bracket;
  comma_ = true;
  return *this;
}

void JsonWriter::separate() {
  if (comma_) out_ += ',';
  comma_ = true;
}

JsonWriter& JsonWriter::key(std::string_view name) {
  string(name);
  out_ += ':';
  comma_ = false;
  return *this;
}

JsonWriter& JsonWriter::string(std::string_view value) {
  static constexpr char kHex[] = "0123456789abcdef";
  separate();
  out_ += '"';
  size_t begin = 0;
  for (size_t i = 0; i < value.size(); ++i) {
    const auto c = static_cast<unsigned char>(value[i]);
    if (c >= 0x20 && c != '"' && c != '\\' && c != 0x7f) continue;
    out_.append(value, begin, i - begin);
    begin = i + 1;
    if (c == '"' || c == '\\') {
      out_ += '\\';
      out_ += static_cast<char>(c);
    } else if (c == '\n') {
      out_ += "\\n";
    } else if (c == '\t') {
      out_ += "\\t";
    } else if (c == '\r') {
      out_ += "\\r";
    } else {
      out_ += "\\u00";
      out_ += kHex[c >> 4];
      out_ += kHex[c & 15];
    }
  }
  out_.append(value, begin, value.size() - begin);
  out_ += '"';
  return *this;
}

JsonWriter& JsonWriter::integer(int64_t value) {
  char text[24];
  return raw({text, static_cast<size_t>(std::to_chars(text, text + sizeof text, value).ptr - text)});
}

JsonWriter& JsonWriter::large_integer(uint64_t value) {
  char text[24];
  return raw({text, static_cast<size_t>(std::to_chars(text, text + sizeof text, value).ptr - text)});
}

JsonWriter& JsonWriter::number(double value, int precision) {
  if (!std::isfinite(value)) return null();
  char text[400];
  const auto end = precision > 0 ? std::to_chars(text, text + sizeof text, value, std::chars_format::fixed, precision)
                                 : std::to_chars(text, text + sizeof text, value);
  return raw({text, static_cast<size_t>(end.ptr - text)});
}

JsonWriter& JsonWriter::single(float value) {
  if (!std::isfinite(value)) return null();
  char text[64];
  return raw({text, static_cast<size_t>(std::to_chars(text, text + sizeof text, value).ptr - text)});
}

JsonWriter& JsonWriter::raw(std::string_view json) {
  separate();
  out_ += json;
  return *this;
}

JsonWriter& JsonWriter::value(const Json& json) {
  if (json.is_null()) return null();
  if (const bool* b = json.boolean()) return boolean(*b);
  if (const int64_t* i = json.integer()) return integer(*i);
  if (const uint64_t* u = json.large_integer()) return large_integer(*u);
  if (json.is_number()) return number(json.number());
  if (const std::string* s = json.string()) return string(*s);
  if (const Json::Array* array = json.array()) {
    begin_array();
    for (const Json& item : *array) value(item);
    return end_array();
  }
  begin_object();
  for (const Json::Member& member : *json.object()) key(member.first).value(member.second);
  return end_object();
}

}  // namespace ibid
