// A small HTTP client: GET for downloads and POST over HTTP/1.1, with TLS for https URLs.
//
// Certificates are verified against the system's store (SSL_CERT_FILE and SSL_CERT_DIR are honoured by OpenSSL), host
// names too. Redirects are followed, relative and across hosts; the Authorization header goes to the first host only
// (scheme, name and port), and never from https to http. Proxies are those of the environment. Blocking; each call
// has its own connection; any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace ibid {

struct Url {
  bool tls = false;
  std::string host;  // without brackets
  std::string port;
  std::string target = "/";  // path and query
  std::string text() const;
  // Scheme, name and port.
  bool same_origin(const Url& other) const;
};
Result<Url> parse_url(std::string_view text);
// Resolves a Location header against `base`.
Result<Url> resolve_url(const Url& base, std::string_view location);

// The proxy for an address as the environment names it: https_proxy (HTTPS_PROXY) or http_proxy, else all_proxy
// (ALL_PROXY); empty where there is none, where no_proxy (NO_PROXY) lists the host or a domain above it, and for this
// machine itself.
std::string proxy_of_environment(const Url& url);

struct HttpHead {
  std::string url;
  int status = 0;
  std::map<std::string, std::string> headers;              // names in lower case; of repeated ones the last
  std::string_view header(const std::string& name) const;  // empty where there is none
};

struct HttpRequest {
  std::string url;
  std::vector<std::pair<std::string, std::string>> headers = {};
  std::string authorization = {};  // the value of that header
  int timeout_s = 60;              // without progress
  int max_redirects = 10;
  std::string proxy = {};  // http://host:port; empty: proxy_of_environment
  std::function<bool()> cancelled = {};
};

// Called once with the redirects' heads and the last one's, then with the body as it comes. An error of either ends the
// request with it.
struct HttpHandler {
  std::function<Status(const std::vector<HttpHead>& heads)> on_head;
  std::function<Status(std::string_view bytes)> on_body;
};

// kUnavailable: what may pass when tried again (no connection, cut off, timed out). Any HTTP status is a success here.
Status http_get(const HttpRequest& request, const HttpHandler& handler);
// Redirects are not followed.
Status http_post(const HttpRequest& request, const std::string& content_type, std::string body,
                 const HttpHandler& handler);
// The answer's status; its body is read and dropped.
Result<int> http_post(const HttpRequest& request, const std::string& content_type, std::string body);

}  // namespace ibid
