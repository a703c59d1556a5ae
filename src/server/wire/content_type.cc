#include "server/wire/content_type.h"

#include <algorithm>

#include "base/quoted.h"
#include "server/wire/header_text.h"

namespace ibid {
namespace {

bool is_foreign(std::string_view charset) {
  static constexpr std::string_view kKnown[] = {"", "utf-8", "utf8", "us-ascii", "ascii"};
  return std::ranges::find(kKnown, charset) == std::end(kKnown);
}

ApiError refused(const char* sentence, std::string_view value) {
  return {415, sentence + shown(value) + ".", "", "unsupported_media_type"};
}

}  // namespace

std::optional<ApiError> check_content_type(const WebRequest& request) {
  if (const std::string coding = lower_case(request.header("content-encoding"));
      !coding.empty() && coding != "identity")
    return refused("The body must be sent as it is; its Content-Encoding is ", coding);
  const std::string type = lower_case(request.header("content-type"));
  bool is_refused = type.starts_with("multipart/");
  for (size_t at = type.find(';'); at != std::string::npos; at = type.find(';', at + 1)) {
    const std::string_view parameter =
        without_blanks(std::string_view(type).substr(at + 1, type.find(';', at + 1) - at - 1));
    if (parameter.starts_with("charset="))
      is_refused = is_refused || is_foreign(without_blanks(parameter.substr(8), " \t\""));
  }
  if (!is_refused) return std::nullopt;
  return refused("The body must be JSON in UTF-8; its Content-Type is ", type);
}

}  // namespace ibid
