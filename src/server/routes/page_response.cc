#include <algorithm>

#include "server/routes/page_files.h"
#include "server/wire/header_text.h"

namespace ibid {
namespace {

// Takes the next part off a list with commas.
std::string_view take_part(std::string_view& list) {
  const size_t comma = list.find(',');
  const std::string_view part = list.substr(0, comma);
  list = comma == std::string_view::npos ? std::string_view() : list.substr(comma + 1);
  return without_blanks(part);
}

// A weight of 0, in any of its spellings ("q=0", "Q=0.000"), means: not this one.
bool is_refused(std::string_view parameters) {
  const std::string_view q = without_blanks(parameters);
  if (q.size() < 3 || lower_case(q.substr(0, 2)) != "q=") return false;
  return without_blanks(q.substr(2)).find_first_not_of("0.") == std::string_view::npos;
}

}  // namespace

bool accepts_coding(std::string_view accepted, std::string_view coding) {
  bool others = false;
  while (!accepted.empty()) {
    const std::string_view part = take_part(accepted);
    const size_t semicolon = std::min(part.find(';'), part.size());
    const std::string_view name = without_blanks(part.substr(0, semicolon));
    const bool takes = semicolon == part.size() || !is_refused(part.substr(semicolon + 1));
    if (lower_case(name) == lower_case(coding)) return takes;
    if (name == "*") others = takes;
  }
  return others;
}

bool names_tag(std::string_view if_none_match, std::string_view tag) {
  while (!if_none_match.empty()) {
    std::string_view part = take_part(if_none_match);
    if (part.starts_with("W/")) part.remove_prefix(2);
    if (part == tag || part == "*") return true;
  }
  return false;
}

WebResponse page_response(const PageFile& file, const WebRequest& request) {
  WebResponse response;
  response.content_type =
      std::string(file.content_type) + (file.content_type.starts_with("text/") ? "; charset=utf-8" : "");
  const bool packed = !file.gzip.empty() && accepts_coding(request.header("accept-encoding"), "gzip");
  const std::string tag = "\"" + std::string(file.version) + (packed ? "-gzip\"" : "\"");
  const bool for_ever = request.query() == file.version;
  response.headers = {{"Content-Security-Policy",
                       "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; "
                       "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
                       "require-trusted-types-for 'script'; trusted-types 'none'"},
                      {"X-Frame-Options", "DENY"},
                      {"Cross-Origin-Resource-Policy", "same-origin"},
                      {"Referrer-Policy", "no-referrer"},
                      {"Cache-Control", for_ever ? "private, max-age=31536000, immutable" : "private, no-cache"},
                      {"ETag", tag},
                      {"Vary", "Accept-Encoding"}};
  if (names_tag(request.header("if-none-match"), tag)) {
    response.status = 304;
    return response;
  }
  if (packed) response.headers.emplace_back("Content-Encoding", "gzip");
  response.body = packed ? file.gzip : file.content;
  return response;
}

}  // namespace ibid
