#include "server/access/host_check.h"

#include <algorithm>
#include <boost/asio/ip/address.hpp>

#include "server/wire/header_text.h"
#include "server/wire/web_message.h"

namespace ibid {
namespace {

// Lower case, without brackets and a root's dot, so that each name has one spelling.
std::string plain_name(std::string_view host) {
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  if (host.ends_with('.')) host.remove_suffix(1);
  return lower_case(host);
}

std::string_view without_port(std::string_view host) {
  const size_t colon = host.rfind(':');
  const bool is_port = colon != std::string_view::npos && (host.find(':') == colon || host[colon - 1] == ']');
  return is_port ? host.substr(0, colon) : host;
}

}  // namespace

bool is_loopback(std::string_view host) {
  if (host == "localhost") return true;
  boost::system::error_code ec;
  const auto address = boost::asio::ip::make_address(std::string(host), ec);
  return !ec && address.is_loopback();
}

bool asks_for_another_site(const WebRequest& request) {
  const std::string_view site = request.header("sec-fetch-site");
  if (site != "cross-site" && site != "same-site") return false;
  const bool is_read = request.method == "GET" || request.method == "HEAD";
  return !is_read || request.header("sec-fetch-mode") != "navigate";
}

HostCheck::HostCheck(std::string_view host, const std::vector<std::string>& allowed_hosts, bool has_keys) {
  if (has_keys || (!is_loopback(host) && allowed_hosts.empty())) return;
  names_ = {"localhost", "127.0.0.1", "::1"};
  if (!host.empty()) names_.push_back(plain_name(host));
  for (const std::string& name : allowed_hosts) names_.push_back(plain_name(name));
}

bool HostCheck::allows(std::string_view host) const {
  if (names_.empty() || host.empty()) return true;
  return std::ranges::find(names_, plain_name(without_port(host))) != names_.end();
}

}  // namespace ibid
