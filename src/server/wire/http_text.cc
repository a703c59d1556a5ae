#include "server/wire/http_text.h"

#include <boost/beast/http/status.hpp>
#include <charconv>
#include <ostream>  // Boost 1.81 forgets it

namespace ibid {

std::string http_head(const WebResponse& response, const HttpFraming& framing) {
  namespace http = boost::beast::http;
  std::string out = "HTTP/1.1 " + std::to_string(response.status) + " ";
  const auto reason = http::obsolete_reason(static_cast<http::status>(response.status));
  out.append(reason.data(), reason.size());
  out += "\r\nContent-Type: " + response.content_type;
  if (response.status == 304) {
    // It has no body, and a length would be that of the body it stands for.
  } else if (framing.length) {
    out += "\r\nContent-Length: " + std::to_string(*framing.length);
  } else if (framing.chunked) {
    out += "\r\nTransfer-Encoding: chunked";
  }
  for (const auto& [name, value] : response.headers) out.append("\r\n").append(name).append(": ").append(value);
  out += "\r\nX-Content-Type-Options: nosniff";
  out += framing.keep_alive ? "\r\nConnection: keep-alive\r\n\r\n" : "\r\nConnection: close\r\n\r\n";
  return out;
}

void append_chunk(std::string& out, std::string_view body) {
  char size[20];
  out.append(size, static_cast<size_t>(std::to_chars(size, size + sizeof size, body.size(), 16).ptr - size));
  out.append("\r\n").append(body).append("\r\n");
}

}  // namespace ibid
