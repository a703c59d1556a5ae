#include <algorithm>

#include "server/page_files.h"

namespace ibid {
namespace {

std::string_view trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t") + 1 - begin);
}

bool same_word(std::string_view a, std::string_view b) {
  const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; };
  return std::ranges::equal(a, b, {}, lower, lower);
}

// Takes the next part off a list with commas.
std::string_view take_part(std::string_view& list) {
  const size_t comma = list.find(',');
  const std::string_view part = list.substr(0, comma);
  list = comma == std::string_view::npos ? std::string_view() : list.substr(comma + 1);
  return trimmed(part);
}

// A weight of 0, in any of its spellings ("q=0", "Q=0.000"), means: not this one.
bool is_refused(std::string_view parameters) {
  const std::string_view q = trimmed(parameters);
  if (q.size() < 3 || !same_word(q.substr(0, 2), "q=")) return false;
  return trimmed(q.substr(2)).find_first_not_of("0.") == std::string_view::npos;
}

}  // namespace

bool accepts_coding(std::string_view accepted, std::string_view coding) {
  bool others = false;
  while (!accepted.empty()) {
    const std::string_view part = take_part(accepted);
    const size_t semicolon = std::min(part.find(';'), part.size());
    const std::string_view name = trimmed(part.substr(0, semicolon));
    const bool takes = semicolon == part.size() || !is_refused(part.substr(semicolon + 1));
    if (same_word(name, coding)) return takes;
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
