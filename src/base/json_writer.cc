#include "base/json_writer.h"

#include <charconv>
#include <cmath>

namespace ibid {

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
  if (json.real() != nullptr) return number(*json.real());
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
