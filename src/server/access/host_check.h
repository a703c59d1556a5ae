// HostCheck: which names in a request's Host header mean this server. A page whose own name is made to lead to loopback
// (DNS rebinding) is of the same origin as what it asks, so that Origin does not give it away; its Host does.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace ibid {

struct WebRequest;

// An address that this machine alone can reach, or "localhost".
bool is_loopback(std::string_view host);

// Whether a browser states that a page of another site makes it ask (Sec-Fetch-Site), which it also does where it gives
// no Origin: for forms, pictures, scripts. A link that is followed is the user's own request.
bool asks_for_another_site(const WebRequest& request);

class HostCheck {
 public:
  // Checks where nothing else keeps strangers out: without keys, on loopback or where allowed_hosts has names. No
  // browser reaches a Unix socket.
  // `host`: the address that the server listens at, empty where it is a Unix socket; `has_keys`: clients send API keys.
  HostCheck(std::string_view host, const std::vector<std::string>& allowed_hosts, bool has_keys);

  // `host`: the header's value, with or without a port; empty where HTTP/1.0 sent none, which no browser does.
  bool allows(std::string_view host) const;

 private:
  std::vector<std::string> names_;  // lower case, without port; empty: all are allowed
};

}  // namespace ibid
