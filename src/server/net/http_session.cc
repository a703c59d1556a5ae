#include "server/net/http_session.h"

#include <poll.h>

namespace ibid {

namespace net = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;

namespace {

WebRequest plain_request(const http::header<true>& head, RequestTarget target, double arrived) {
  static constexpr const char* kNames[] = {
      "authorization", "origin",           "host",           "x-api-key",      "x-request-id",    "content-type",
      "traceparent",   "content-encoding", "sec-fetch-site", "sec-fetch-mode", "accept-encoding", "if-none-match"};
  WebRequest request;
  request.method = std::string(head.method_string());
  for (const char* name : kNames) {
    std::string_view value = head[name];
    if (name == std::string_view("host") && !target.host.empty()) value = target.host;
    if (!value.empty()) request.headers.emplace_back(name, value);
  }
  request.target = std::move(target.path);
  request.arrived = arrived;
  return request;
}

// Beast takes any byte inside a quoted extension, and some other reader takes a line's end there for the extension's.
// It has no state; that it is not const is Beast's wish.
auto check_extensions = [](uint64_t, beast::string_view extensions, boost::system::error_code& ec) {
  for (const char c : extensions) {
    if ((static_cast<unsigned char>(c) < 0x20 && c != '\t') || c == 0x7f) ec = http::error::bad_chunk_extension;
  }
};

}  // namespace

HttpSession::HttpSession(std::shared_ptr<HttpShared> shared, StreamSocket socket, net::ip::address address)
    : shared_(std::move(shared)),
      stream_(std::move(socket)),
      address_(std::move(address)),
      timer_(stream_.get_executor()) {
  buffer_.max_size(static_cast<size_t>(shared_->options.max_header_bytes) + kMaxPipelined);
  const std::lock_guard lock(shared_->mutex);
  shared_->sessions.insert(this);
}

HttpSession::~HttpSession() {
  // An answer that was cut by an exception still has to free its blocks.
  if (exchange_) {
    try {
      give_up(Abort::kNoMemory);
    } catch (const std::exception&) {
    }
  }
  release_body();
  const std::lock_guard lock(shared_->mutex);
  shared_->sessions.erase(this);
  if (const auto found = shared_->per_address.find(address_);
      found != shared_->per_address.end() && --found->second <= 0) {
    shared_->per_address.erase(found);
  }
  shared_->front.on_connections(--shared_->n_connections);
}

void HttpSession::start() {
  net::post(stream_.get_executor(), [self = shared_from_this()] { self->guard([&] { self->wait_for_request(); }); });
}

void HttpSession::drain() {
  net::post(stream_.get_executor(), [self = shared_from_this()] {
    self->keep_alive_ = false;
    if (self->phase_ == Phase::kIdle) self->close();
  });
}

void HttpSession::cancel() {
  net::post(stream_.get_executor(), [self = shared_from_this()] {
    if (self->phase_ == Phase::kAnswering && self->exchange_ &&
        (self->exchange_->generation || !self->exchange_->instances.empty()))
      self->shared_->front.cancel(*self->exchange_);
  });
}

void HttpSession::kill() {
  net::post(stream_.get_executor(), [self = shared_from_this()] { self->guard([&] { self->cut(Abort::kShutdown); }); });
}

// ---- reading -------------------------------------------------------------------------------------------------------

void HttpSession::wait_for_request() {
  phase_ = Phase::kIdle;
  empty_line_taken_ = false;
  stream_.expires_after(in_seconds(shared_->options.idle_timeout));
  begin_request();
}

// Some clients end a body with an empty line. One before a request is no part of it (RFC 9112, 2.2), and begins none.
void HttpSession::begin_request() {
  const std::string_view bytes(static_cast<const char*>(buffer_.data().data()), buffer_.size());
  if (!empty_line_taken_ && bytes.starts_with("\r\n")) {
    empty_line_taken_ = true;
    buffer_.consume(2);
  }
  const bool half_a_line = !empty_line_taken_ && bytes == "\r";
  if (buffer_.size() > 0 && !half_a_line) return read_header();
  if (shared_->draining || gone_) return close();
  if (buffer_.size() == 0) {
    buffer_.clear();
    buffer_.shrink_to_fit();
  }
  watch();
}

// One read that ends with the first bytes of a request, or with the client's going.
void HttpSession::watch() {
  watching_ = true;
  if (is_full()) {
    stream_.socket().async_wait(net::socket_base::wait_error, [self = shared_from_this()](error_code ec) {
      // It ends for urgent data, too.
      self->guard([&] { self->on_bytes(!ec && self->hung_up() ? net::error::eof : ec, 0); });
    });
    return;
  }
  stream_.async_read_some(buffer_.prepare(kFirstRead), [self = shared_from_this()](error_code ec, size_t n) {
    self->guard([&] { self->on_bytes(ec, n); });
  });
}

// Whether the client has closed or reset, after whatever it sent before.
bool HttpSession::hung_up() {
  pollfd socket = {stream_.socket().native_handle(), POLLRDHUP, 0};
  return ::poll(&socket, 1, 0) > 0 && (socket.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0;
}

void HttpSession::on_bytes(error_code ec, size_t n) {
  watching_ = false;
  if (!ec) buffer_.commit(n);
  if (phase_ == Phase::kIdle) {
    const bool is_taken_back = std::exchange(taken_back_, false);
    if (ec && !(is_taken_back && ec == net::error::operation_aborted)) return close();
    return is_taken_back ? wait_for_request() : begin_request();
  }
  if (phase_ == Phase::kClosing) return linger();  // which took it back
  if (phase_ != Phase::kAnswering && phase_ != Phase::kHandling) return;
  if (!ec) return watch();
  // Many clients close on "[DONE]", and we may learn that before the kernel reports that it took the last bytes. The
  // close is reported once: another read would wait for its deadline.
  gone_ = true;
  if (phase_ == Phase::kHandling) return shared_->front.on_gone();  // the request is passed over where it waits
  if (!whole_) cut(Abort::kClientGone);
}

void HttpSession::read_header() {
  phase_ = Phase::kHeader;
  arrived_ = shared_->front.now();
  parser_.emplace();
  parser_->header_limit(static_cast<uint32_t>(shared_->options.max_header_bytes));
  parser_->body_limit(static_cast<uint64_t>(shared_->options.max_body_bytes));
  parser_->on_chunk_header(check_extensions);
  stream_.expires_after(in_seconds(shared_->options.header_timeout));
  http::async_read_header(stream_, buffer_, *parser_, [self = shared_from_this()](error_code ec, size_t) {
    self->guard([&] { self->on_header(ec); });
  });
}

void HttpSession::on_header(error_code ec) {
  if (ec) return refuse(ec);
  phase_ = Phase::kBody;
  arrived_ = shared_->front.now();
  keep_alive_ = parser_->keep_alive() && !shared_->draining;
  head_only_ = parser_->get().method() == http::verb::head;
  chunked_ = parser_->get().version() >= 11;
  if (const std::optional<HeadRefusal> wrong = check_head()) return refuse(wrong->status, wrong->message, wrong->code);
  if (parser_->is_done()) return handle();
  // A large body is not read before the key is known.
  if (is_large() && !shared_->front.has_key(request_)) {
    return refuse(401, ApiKeys::kWanted, "invalid_api_key");
  }
  const bool expects = beast::iequals(parser_->get()[http::field::expect], "100-continue");
  if (!expects || !chunked_) return read_body();
  static constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";
  stream_.expires_after(in_seconds(shared_->options.write_timeout));
  net::async_write(stream_, net::buffer(kContinue), [self = shared_from_this()](error_code e, size_t) {
    self->guard([&] { e ? self->close() : self->read_body(); });
  });
}

// Fills request_ but for its body.
std::optional<HeadRefusal> HttpSession::check_head() {
  const auto& head = parser_->get();
  // RFC 9112, 3.2: what stands between us and the client may have believed the other one.
  const auto n_hosts = head.count(http::field::host);
  if (n_hosts > 1) return HeadRefusal{400, "The request has more than one Host header.", "bad_host"};
  if (n_hosts == 0 && head.version() >= 11)
    return HeadRefusal{400, "The Host header is missing; HTTP/1.1 needs one.", "bad_host"};
  if (head.count(http::field::transfer_encoding) > 0) {
    std::string codings;
    const auto [begin, end] = head.equal_range(http::field::transfer_encoding);
    for (auto field = begin; field != end; ++field) codings.append(field->value()).append(",");
    if (auto wrong = check_transfer_codings(codings, head.version() >= 11, parser_->chunked())) return wrong;
  }
  std::optional<RequestTarget> target = split_target(head.target());
  if (!target)
    return HeadRefusal{400, "The request's target must be a path, or a URL of http with a host.", "bad_target"};
  take_off_root(shared_->options.root_path, target->path);
  request_ = plain_request(head, *std::move(target), arrived_);
  return std::nullopt;
}

void HttpSession::read_body() {
  stream_.expires_after(in_seconds(shared_->options.body_timeout));
  if (is_large()) buffer_.reserve(kMaxPipelined);
  parser_->get().body().may_hold = [this](size_t n) { return may_hold(n); };  // the parser is ours
  http::async_read(stream_, buffer_, *parser_,
                   [self = shared_from_this()](error_code ec, size_t) { self->guard([&] { self->on_body(ec); }); });
}

void HttpSession::on_body(error_code ec) {
  if (ec == net::error::no_memory) {
    return refuse(429, "Too many large requests arrive at once; try again.", "too_many_bytes");
  }
  if (ec) return refuse(ec);
  handle();
}

// Bodies count as they arrive: what a header promises holds nothing. A string without a known length is copied as it
// grows, and so counts twice. An eighth is left to small bodies, whom large ones that never end so do not keep out.
bool HttpSession::may_hold(size_t n) {
  const int64_t counted = static_cast<int64_t>(n) * (parser_->chunked() ? 2 : 1);
  const int64_t most = shared_->options.max_bodies_bytes;
  const int64_t more = counted - std::exchange(counted_, counted);
  return shared_->front.add_body_bytes(more) <= (is_large() ? most - most / 8 : most);
}

bool HttpSession::is_large() const { return parser_->chunked() || parser_->content_length().value_or(0) > kSmallBody; }

void HttpSession::refuse(error_code ec) {
  if (ec == beast::error::timeout) {
    shared_->front.refuse(408, "", "", arrived_);  // counted; the socket is closed already
    return close();
  }
  if (ec == http::error::body_limit) return refuse(413, "The body is larger than this server takes.", "body_too_large");
  if (ec == http::error::header_limit || ec == http::error::buffer_overflow) {
    return refuse(431, "The header is larger than this server takes.", "header_too_large");
  }
  const bool is_http = ec.category() == http::make_error_code(http::error::bad_method).category();
  if (!is_http || ec == http::error::end_of_stream || ec == http::error::partial_message) return close();
  refuse(400, "This is not a well-formed HTTP/1.1 request.", "malformed_http");
}

void HttpSession::refuse(int status, const char* message, const char* code) {
  phase_ = Phase::kClosing;
  release_body();
  parser_.reset();
  keep_alive_ = false;
  head_only_ = false;
  const WebResponse response = shared_->front.refuse(status, message, code, arrived_);
  write_head(response, response.body.size());
  out_ += response.body;
  write_out();
}

void HttpSession::release_body() { shared_->front.add_body_bytes(-std::exchange(counted_, 0)); }

}  // namespace ibid
