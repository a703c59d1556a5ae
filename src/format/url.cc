#include <algorithm>
#include <cctype>
#include <cstdlib>

#include "base/quoted.h"
#include "format/http_client.h"

namespace ibid {
namespace {

bool starts_with_scheme(std::string_view text, std::string_view scheme) {
  return text.size() >= scheme.size() && std::equal(scheme.begin(), scheme.end(), text.begin(), [](char a, char b) {
           return a == std::tolower(static_cast<unsigned char>(b));
         });
}

}  // namespace

std::string Url::text() const {
  bool standard = port == (tls ? "443" : "80");
  std::string shown = host.find(':') == std::string::npos ? host : "[" + host + "]";
  return (tls ? "https://" : "http://") + shown + (standard ? "" : ":" + port) + target;
}

bool Url::same_origin(const Url& other) const { return tls == other.tls && host == other.host && port == other.port; }

Result<Url> parse_url(std::string_view text) {
  auto bad = [&](const char* why) { return invalid("the address " + in_quotes(text) + " " + why, std::string(text)); };
  Url url;
  std::string_view rest = text;
  if (starts_with_scheme(text, "https://")) {
    url.tls = true;
    rest.remove_prefix(8);
  } else if (starts_with_scheme(text, "http://")) {
    rest.remove_prefix(7);
  } else {
    return bad("does not begin with http:// or https://");
  }
  // A control byte or space here could smuggle a second header or request.
  if (std::any_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) <= ' ' || c == 0x7f; })) {
    return bad("contains spaces or control bytes");
  }
  rest = rest.substr(0, rest.find('#'));
  size_t end = std::min(rest.find_first_of("/?"), rest.size());
  std::string_view authority = rest.substr(0, end);
  std::string_view target = rest.substr(end);
  if (authority.find('@') != std::string_view::npos) return bad("contains a user name, which is not supported");
  std::string_view port;
  if (!authority.empty() && authority[0] == '[') {
    size_t close = authority.find(']');
    if (close == std::string_view::npos) return bad("has an open bracket");
    url.host = authority.substr(1, close - 1);
    port = authority.substr(close + 1);
    if (!port.empty() && port[0] != ':') return bad("has something between host and port");
    if (!port.empty()) port.remove_prefix(1);
  } else {
    size_t colon = std::min(authority.find(':'), authority.size());
    url.host = authority.substr(0, colon);
    if (colon < authority.size()) port = authority.substr(colon + 1);
  }
  if (url.host.empty()) return bad("has no host");
  std::transform(url.host.begin(), url.host.end(), url.host.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  bool digits = std::all_of(port.begin(), port.end(), [](unsigned char c) { return std::isdigit(c) != 0; });
  if (!digits || port.size() > 5) return bad("has no valid port");
  url.port = port.empty() ? (url.tls ? "443" : "80") : std::string(port);
  url.target = target.empty() || target[0] == '?' ? "/" + std::string(target) : std::string(target);
  return url;
}

Result<Url> resolve_url(const Url& base, std::string_view location) {
  if (starts_with_scheme(location, "http://") || starts_with_scheme(location, "https://")) return parse_url(location);
  if (location.starts_with("//")) return parse_url((base.tls ? "https:" : "http:") + std::string(location));
  Url origin = base;
  origin.target.clear();
  std::string path = base.target.substr(0, base.target.find('?'));
  if (location.starts_with("/")) return parse_url(origin.text() + std::string(location));
  if (location.starts_with("?")) return parse_url(origin.text() + path + std::string(location));
  return parse_url(origin.text() + path.substr(0, path.rfind('/') + 1) + std::string(location));
}

std::string proxy_of_environment(const Url& url) {
  auto first_of = [](std::initializer_list<const char*> names) -> std::string {
    for (const char* name : names) {
      if (const char* value = std::getenv(name); value != nullptr && *value != 0) return value;
    }
    return "";
  };
  if (url.host == "localhost" || url.host == "::1" || url.host.starts_with("127.")) return "";
  std::string without = first_of({"no_proxy", "NO_PROXY"});
  for (size_t start = 0; start < without.size();) {
    size_t end = std::min(without.find_first_of(", ", start), without.size());
    std::string_view name = std::string_view(without).substr(start, end - start);
    if (name == "*") return "";
    while (name.starts_with('.')) name.remove_prefix(1);
    if (!name.empty() && (url.host == name || url.host.ends_with("." + std::string(name)))) return "";
    start = end + 1;
  }
  // HTTP_PROXY in capitals can be set by a request's header in CGI programs, so the field does not read it.
  return url.tls ? first_of({"https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"})
                 : first_of({"http_proxy", "all_proxy", "ALL_PROXY"});
}

std::string_view HttpHead::header(const std::string& name) const {
  auto it = headers.find(name);
  return it == headers.end() ? std::string_view() : std::string_view(it->second);
}

}  // namespace ibid
