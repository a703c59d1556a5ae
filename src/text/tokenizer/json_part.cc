#include "text/tokenizer/json_part.h"

#include <exception>

namespace ibid::json_parts {

constexpr size_t kMaxPartBytes = size_t{2} << 20;

Result<json::value> parse(std::string_view text, const char* part) {
  if (text.size() > kMaxPartBytes) {
    return unsupported(std::string(part) + " has " + std::to_string(text.size()) + " bytes; at most " +
                           std::to_string(kMaxPartBytes) + " are read",
                       part);
  }
  boost::system::error_code failure;
  json::parse_options options;
  options.max_depth = 40;
  try {
    json::value value = json::parse(text, failure, {}, options);
    if (failure) return invalid(std::string(part) + " is no JSON: " + failure.message(), part);
    return value;
  } catch (const std::exception& e) {
    return exhausted(std::string(part) + " could not be read: " + e.what(), part);
  }
}

PatternText read_pattern(Part& part) {
  PatternText p;
  const json::value* v = part.get("pattern");
  const json::object* o = v ? v->if_object() : nullptr;
  const json::value* string = o ? o->if_contains("String") : nullptr;
  const json::value* regex = o ? o->if_contains("Regex") : nullptr;
  const json::value* text = string ? string : regex;
  if (!text || !text->is_string()) {
    part.wrong("a String or a Regex", "pattern");
    return p;
  }
  p.regex = regex && !string;
  p.text = std::string_view(text->get_string());
  if (!p.regex) part.check_literal(p.text);
  return p;
}

}  // namespace ibid::json_parts
