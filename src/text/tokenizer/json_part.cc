#include "text/tokenizer/json_part.h"

namespace ibid::json_parts {

Result<Json> parse(std::string_view text, const char* part) {
  constexpr JsonLimits kLimits = {
      .max_bytes = size_t{2} << 20, .max_depth = 40, .max_values = size_t{1} << 20, .last_key_counts = true};
  std::variant<Json, JsonError> read = read_tree(text, kLimits);
  if (auto* tree = std::get_if<Json>(&read)) return std::move(*tree);
  const JsonError& error = std::get<JsonError>(read);
  if (error.kind == JsonError::Kind::kTooLong) {
    return unsupported(std::string(part) + " has " + std::to_string(text.size()) + " bytes; at most " +
                           std::to_string(kLimits.max_bytes) + " are read",
                       part);
  }
  return invalid(std::string(part) + " is no JSON: " + error.what, part);
}

PatternText read_pattern(Part& part) {
  PatternText p;
  const Json* v = part.get("pattern");
  const Json* string = v ? v->find("String") : nullptr;
  const Json* regex = v ? v->find("Regex") : nullptr;
  const Json* text = string ? string : regex;
  if (!text || !text->string()) {
    part.wrong("a String or a Regex", "pattern");
    return p;
  }
  p.regex = regex && !string;
  p.text = *text->string();
  if (!p.regex) part.check_literal(p.text);
  return p;
}

}  // namespace ibid::json_parts
