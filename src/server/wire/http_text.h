// What an answer looks like on the wire: HTTP/1.1 heads and chunks.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "server/wire/web_message.h"

namespace ibid {

struct HttpFraming {
  std::optional<size_t> length;  // none: chunks, or until the connection closes
  bool chunked = false;
  bool keep_alive = true;
};

std::string http_head(const WebResponse& response, const HttpFraming& framing);
void append_chunk(std::string& out, std::string_view body);

}  // namespace ibid
