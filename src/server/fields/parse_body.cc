#include "server/fields/parse_body.h"

#include <string>
#include <utility>

namespace ibid {

Result<Json> parse_body(std::string_view text, const JsonLimits& limits) {
  const size_t n_skipped = text.starts_with("\xef\xbb\xbf") ? 3 : 0;
  std::variant<Json, JsonError> read = read_tree(text.substr(n_skipped), limits);
  if (auto* body = std::get_if<Json>(&read)) return std::move(*body);
  const JsonError& error = std::get<JsonError>(read);
  const std::string at = std::to_string(n_skipped + error.at);
  switch (error.kind) {
    case JsonError::Kind::kGoesOn:
      return invalid("the body is not one JSON value: something follows it at byte " + at);
    case JsonError::Kind::kSyntax:
      return invalid("the body is not valid JSON in UTF-8: " + error.what + " near byte " + at, error.path);
    case JsonError::Kind::kTwice:
      return invalid("the body is refused: the key " + error.key + " stands there twice", error.path);
    case JsonError::Kind::kTooLong:
      return invalid("the body " + error.what);
    case JsonError::Kind::kLimit:
      break;
  }
  return invalid("the body is refused: " + error.what, error.path);
}

}  // namespace ibid
