// The page's files, made from src/server/page by bundle_page.py and built into the binary by module.cmake.
#pragma once

#include <span>
#include <string_view>

#include "server/wire/web_message.h"

namespace ibid {

struct PageFile {
  std::string_view path;  // "/", "/app.js", ...
  std::string_view content_type;
  std::string_view version;  // changes with the content
  std::string_view content;
  std::string_view gzip = {};  // the same compressed, where that is shorter
};

std::span<const PageFile> page_files();

// Whether an Accept-Encoding takes `coding` (RFC 9110, 12.5.3).
bool accepts_coding(std::string_view accepted, std::string_view coding);

// Whether an If-None-Match names `tag`, quotes included (RFC 9110, 13.1.2).
bool names_tag(std::string_view if_none_match, std::string_view tag);

// The answer to a GET of the file: compressed for clients that take it, and 304 for those that have it. A client that
// asks for its version ("/app.js?VERSION") may keep it for ever.
WebResponse page_response(const PageFile& file, const WebRequest& request);

}  // namespace ibid
