#include "server/wire/http_request_head.h"

#include <algorithm>

#include "server/wire/header_text.h"

namespace ibid {
std::optional<HeadRefusal> check_transfer_codings(std::string_view codings, bool is_http11, bool is_chunked) {
  int n_codings = 0, n_chunked = 0;
  bool ends_chunked = false;
  while (!codings.empty()) {
    const std::string_view coding = without_blanks(codings.substr(0, codings.find(',')));
    codings.remove_prefix(std::min(codings.size(), codings.find(',') + 1));
    if (coding.empty()) continue;  // RFC 9110, 5.6.1.2
    ends_chunked = lower_case(coding) == "chunked";
    ++n_codings;
    n_chunked += ends_chunked;
  }
  if (!is_http11 || !ends_chunked || n_chunked > 1) {
    return HeadRefusal{400, "The end of this body is ambiguous: Transfer-Encoding must be \"chunked\", in HTTP/1.1.",
                       "malformed_http"};
  }
  if (n_codings > 1)
    return HeadRefusal{501, "The only Transfer-Encoding that is known here is \"chunked\".", "unknown_coding"};
  if (!is_chunked) return HeadRefusal{400, "This Transfer-Encoding is not well-formed.", "malformed_http"};
  return std::nullopt;
}

std::optional<RequestTarget> split_target(std::string_view target) {
  const size_t scheme = target.find("://");
  if (target.starts_with('/') || scheme == std::string_view::npos) return RequestTarget{{}, std::string(target)};
  const std::string name = lower_case(target.substr(0, scheme));
  if (name != "http" && name != "https") return std::nullopt;
  target.remove_prefix(scheme + 3);
  const std::string_view host = target.substr(0, target.find_first_of("/?#"));
  if (host.empty() || host.starts_with(':') || host.find('@') != std::string_view::npos) return std::nullopt;
  target.remove_prefix(host.size());
  return RequestTarget{host, target.starts_with('/') ? std::string(target) : "/" + std::string(target)};
}

void take_off_root(std::string_view root, std::string& path) {
  if (root.empty() || !path.starts_with(root)) return;
  const std::string_view rest = std::string_view(path).substr(root.size());
  if (rest.empty() || rest.front() == '/' || rest.front() == '?') path.erase(0, root.size());
  if (path.empty() || path.front() != '/') path.insert(0, 1, '/');
}

}  // namespace ibid
