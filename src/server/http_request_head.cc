#include "server/http_request_head.h"

#include <algorithm>
#include <cctype>

namespace ibid {
namespace {

bool equal_without_case(std::string_view text, std::string_view lower) {
  return std::ranges::equal(text, lower, {}, [](unsigned char c) { return std::tolower(c); });
}

std::string_view without_blanks(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

}  // namespace

std::optional<HeadRefusal> check_transfer_codings(std::string_view codings, bool is_http11, bool is_chunked) {
  int n_codings = 0, n_chunked = 0;
  bool ends_chunked = false;
  while (!codings.empty()) {
    const std::string_view coding = without_blanks(codings.substr(0, codings.find(',')));
    codings.remove_prefix(std::min(codings.size(), codings.find(',') + 1));
    if (coding.empty()) continue;  // RFC 9110, 5.6.1.2
    ends_chunked = equal_without_case(coding, "chunked");
    ++n_codings;
    n_chunked += ends_chunked;
  }
  if (!is_http11 || !ends_chunked || n_chunked > 1) {
    return HeadRefusal{400, "Where this body ends cannot be told: Transfer-Encoding must be \"chunked\", in HTTP/1.1.",
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
  const std::string_view name = target.substr(0, scheme);
  if (!equal_without_case(name, "http") && !equal_without_case(name, "https")) return std::nullopt;
  target.remove_prefix(scheme + 3);
  const std::string_view host = target.substr(0, target.find_first_of("/?#"));
  if (host.empty() || host.starts_with(':') || host.find('@') != std::string_view::npos) return std::nullopt;
  target.remove_prefix(host.size());
  return RequestTarget{host, target.starts_with('/') ? std::string(target) : "/" + std::string(target)};
}

}  // namespace ibid
