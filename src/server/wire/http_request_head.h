// Checks of a request's head beyond what Beast's parser asks of it, so that no two readers of the same bytes (a proxy
// and this server) see two requests: where the body ends (RFC 9112, 6), and what is asked for (3.2).
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace ibid {

// Why a connection ends after one answer.
struct HeadRefusal {
  int status;
  const char* message;
  const char* code;
};

// `codings`: the values of all Transfer-Encoding headers, in their order, with commas between; `is_http11`: of at least
// that version; `is_chunked`: the parser will read chunks. Anything but one "chunked" of HTTP/1.1 is refused, also
// beside a Content-Length: 501 where chunks would end a body in a coding that is not known here, else 400.
std::optional<HeadRefusal> check_transfer_codings(std::string_view codings, bool is_http11, bool is_chunked);

struct RequestTarget {
  std::string_view host;  // with its port, of a target that is a whole URL: then in place of the Host header's
  std::string path;       // and query
};

// None: a URL that is not of http or https, or without a host, or with a user in it. Views into `target`.
std::optional<RequestTarget> split_target(std::string_view target);

// A proxy that hands paths on as they came asks below the server's root path; others do not, and mean the same.
void take_off_root(std::string_view root, std::string& path);

}  // namespace ibid
