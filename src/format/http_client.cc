#include "format/http_client.h"

#include <algorithm>
#include <boost/asio/connect.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/host_name_verification.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http.hpp>
#include <boost/beast/ssl/ssl_stream.hpp>
#include <cctype>
#include <chrono>

namespace ibid {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using Code = boost::system::error_code;

constexpr uint32_t kMaxHeadBytes = 64 * 1024;

// One request on one connection.
class Exchange {
 public:
  Exchange(const HttpRequest& request, const Url& url) : request_(request), url_(url) {}

  // Sends the request and reads the head; more() then gives the body. `post`: its content type and body, which is
  // taken, in place of a GET.
  Status send(bool with_authorization, std::pair<std::string, std::string>* post = nullptr) {
    Status connected = connect();
    if (!connected) return connected;
    // A proxy needs the whole address, unless a tunnel goes through it.
    bool whole = proxy_ && !url_.tls;
    http::request<http::string_body> message(post != nullptr ? http::verb::post : http::verb::get,
                                             whole ? url_.text() : url_.target, 11);
    bool standard = url_.port == (url_.tls ? "443" : "80");
    message.set(http::field::host, standard ? url_.host : url_.host + ":" + url_.port);
    message.set(http::field::user_agent, "ibid/" IBID_VERSION);
    message.set(http::field::accept, "*/*");
    message.set(http::field::accept_encoding, "identity");
    message.set(http::field::connection, "close");
    for (const auto& [name, value] : request_.headers) message.set(name, value);
    if (post != nullptr) {
      message.set(http::field::content_type, post->first);
      message.body() = std::move(post->second);
      message.prepare_payload();
    }
    if (with_authorization && !request_.authorization.empty()) {
      message.set(http::field::authorization, request_.authorization);
    }
    parser_.body_limit(boost::none);
    parser_.header_limit(kMaxHeadBytes);
    auto talk = [&](auto& stream) -> Status {
      TRY(await("send the request to", url_, [&](auto done) { http::async_write(stream, message, done); }));
      return await("read the answer of", url_,
                   [&](auto done) { http::async_read_header(stream, buffer_, parser_, done); });
    };
    return tls_ ? talk(*tls_) : talk(*plain_);
  }

  HttpHead head() const {
    HttpHead out{url_.text(), static_cast<int>(parser_.get().result_int()), {}};
    for (const auto& field : parser_.get()) {
      std::string name(field.name_string());
      std::transform(name.begin(), name.end(), name.begin(),
                     [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
      out.headers[name] = std::string(field.value());
    }
    return out;
  }

  Status read_body(const HttpHandler& handler) {
    std::string piece(256 * 1024, '\0');
    while (!parser_.is_done()) {
      auto& body = parser_.get().body();
      body.data = piece.data();
      body.size = piece.size();
      auto read = [&](auto& stream) {
        return await("read from", url_, [&](auto done) { http::async_read_some(stream, buffer_, parser_, done); });
      };
      Status status = tls_ ? read(*tls_) : read(*plain_);
      // Bytes that arrived before a connection broke count.
      if (size_t n = piece.size() - body.size; n > 0) TRY(handler.on_body({piece.data(), n}));
      if (!status) return status;
    }
    return {};
  }

 private:
  Status connect() {
    std::string proxy = request_.proxy.empty() ? proxy_of_environment(url_) : request_.proxy;
    if (!proxy.empty()) {
      ASSIGN_OR_RETURN(proxy_, parse_url(proxy.find("://") == std::string::npos ? "http://" + proxy : proxy));
      if (proxy_->tls)
        return unsupported("the proxy " + proxy + " is reached by https; only http:// is supported", proxy);
    }
    const Url& peer = proxy_ ? *proxy_ : url_;
    asio::ip::tcp::resolver resolver(io_);
    asio::ip::tcp::resolver::results_type addresses;
    TRY(await("find the address of", peer, [&](auto done) {
      resolver.async_resolve(peer.host, peer.port, [&addresses, done](Code code, auto found) {
        addresses = std::move(found);
        done(code, 0);
      });
    }));
    auto open = [&] {
      return await("connect to", peer,
                   [&](auto done) { lowest().async_connect(addresses, [done](Code c, const auto&) { done(c, 0); }); });
    };
    if (!url_.tls) {
      plain_.emplace(io_);
      return open();
    }
    // Nothing is sent unless every step of the verification is in place.
    Code code;
    if (context_.set_default_verify_paths(code); code) return failure("verify", url_, code);
    if (context_.set_verify_mode(asio::ssl::verify_peer, code); code) return failure("verify", url_, code);
    tls_.emplace(io_, context_);
    if (tls_->set_verify_callback(asio::ssl::host_name_verification(url_.host), code); code) {
      return failure("verify", url_, code);
    }
    if (SSL_set_tlsext_host_name(tls_->native_handle(), url_.host.c_str()) != 1) {
      return invalid("the host name " + url_.host + " cannot be used with TLS", url_.host);
    }
    TRY(open());
    if (proxy_) TRY(tunnel());
    return await("agree on TLS with", url_, [&](auto done) {
      tls_->async_handshake(asio::ssl::stream_base::client, [done](Code c) { done(c, 0); });
    });
  }

  Status tunnel() {
    std::string target =
        (url_.host.find(':') == std::string::npos ? url_.host : "[" + url_.host + "]") + ":" + url_.port;
    http::request<http::empty_body> message(http::verb::connect, target, 11);
    message.set(http::field::host, target);
    http::response_parser<http::empty_body> answer;
    answer.skip(true);  // what follows the head is the tunnel
    beast::flat_buffer buffer;
    TRY(await("ask", *proxy_, [&](auto done) { http::async_write(lowest(), message, done); }));
    TRY(await("read the answer of", *proxy_,
              [&](auto done) { http::async_read_header(lowest(), buffer, answer, done); }));
    if (answer.get().result_int() / 100 == 2) return {};
    return invalid("the proxy " + proxy_->text() + " does not connect to " + target + ": it answered " +
                       std::to_string(answer.get().result_int()),
                   proxy_->text());
  }

  beast::tcp_stream& lowest() { return tls_ ? beast::get_lowest_layer(*tls_) : *plain_; }

  // Starts an operation and runs until it is done, watching for cancellation.
  template <typename Start>
  Status await(const char* what, const Url& peer, Start start) {
    Code code;
    bool done = false;
    bool cancelled = false;
    if (plain_ || tls_) lowest().expires_after(std::chrono::seconds(request_.timeout_s));
    start([&code, &done](Code c, size_t) {
      code = c;
      done = true;
    });
    io_.restart();
    while (!done) {
      io_.run_for(std::chrono::milliseconds(100));
      if (io_.stopped() && !done) io_.restart();
      if (!cancelled && request_.cancelled && request_.cancelled()) {
        cancelled = true;
        if (!plain_ && !tls_) break;
        lowest().cancel();
      }
    }
    if (cancelled) return unavailable("cancelled", url_.text());
    if (!code || code == http::error::need_buffer) return {};
    return failure(what, peer, code);
  }

  Error failure(const char* what, const Url& peer, const Code& code) const {
    std::string text = "cannot " + std::string(what) + " " + peer.host + ": ";
    if (code == beast::error::timeout) {
      return unavailable(text + "nothing came for " + std::to_string(request_.timeout_s) + " s", url_.text());
    }
    if (code.category() == asio::error::get_ssl_category() && ERR_GET_LIB(code.value()) == ERR_LIB_SSL &&
        ERR_GET_REASON(code.value()) == SSL_R_CERTIFICATE_VERIFY_FAILED) {
      return invalid(text +
                         "its certificate cannot be verified; install ca-certificates, or name the authority in "
                         "SSL_CERT_FILE",
                     url_.text());
    }
    if (code == http::error::partial_message || code == http::error::end_of_stream ||
        code == asio::ssl::error::stream_truncated) {
      return unavailable(text + "the connection was closed before the end", url_.text());
    }
    // An error from bytes that are not HTTP will not pass on a retry.
    if (code.category() == http::make_error_code(http::error::bad_version).category()) {
      return invalid(text + "its answer is no valid HTTP (" + code.message() + ")", url_.text());
    }
    return unavailable(text + code.message(), url_.text());
  }

  const HttpRequest& request_;
  const Url url_;
  std::optional<Url> proxy_;
  asio::io_context io_{1};
  asio::ssl::context context_{asio::ssl::context::tls_client};
  std::optional<beast::tcp_stream> plain_;
  std::optional<beast::ssl_stream<beast::tcp_stream>> tls_;
  beast::flat_buffer buffer_;
  http::response_parser<http::buffer_body> parser_;
};

bool is_redirect(int status) {
  return status == 301 || status == 302 || status == 303 || status == 307 || status == 308;
}

}  // namespace

Status http_post(const HttpRequest& request, const std::string& content_type, std::string body,
                 const HttpHandler& handler) {
  ASSIGN_OR_RETURN(const Url url, parse_url(request.url));
  Exchange exchange(request, url);
  std::pair<std::string, std::string> post = {content_type, std::move(body)};
  TRY(exchange.send(true, &post));
  TRY(handler.on_head({exchange.head()}));
  return exchange.read_body(handler);
}

Result<int> http_post(const HttpRequest& request, const std::string& content_type, std::string body) {
  int status = 0;
  const auto on_head = [&status](const std::vector<HttpHead>& heads) {
    status = heads.back().status;
    return Status();
  };
  TRY(http_post(request, content_type, std::move(body),
                {.on_head = on_head, .on_body = [](std::string_view) { return Status(); }}));
  return status;
}

Status http_get(const HttpRequest& request, const HttpHandler& handler) {
  ASSIGN_OR_RETURN(Url url, parse_url(request.url));
  const Url first = url;
  bool with_authorization = true;
  std::vector<HttpHead> heads;
  for (int i = 0; i <= request.max_redirects; ++i) {
    Exchange exchange(request, url);
    TRY(exchange.send(with_authorization));
    heads.push_back(exchange.head());
    std::string location(heads.back().header("location"));
    if (!is_redirect(heads.back().status) || location.empty()) {
      TRY(handler.on_head(heads));
      return exchange.read_body(handler);
    }
    ASSIGN_OR_RETURN(Url next, resolve_url(url, location));
    if (url.tls && !next.tls) {
      return invalid(url.host + " redirects from https to http (" + next.text() + "), which is refused", url.text());
    }
    // Once a redirect has left the host, the token is not sent again, even if a further redirect leads back.
    with_authorization = with_authorization && next.same_origin(first);
    url = next;
  }
  return invalid(first.text() + " redirects more than " + std::to_string(request.max_redirects) + " times",
                 first.text());
}

}  // namespace ibid
