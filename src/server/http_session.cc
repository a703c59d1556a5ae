#include "server/http_session.h"

#include <charconv>
#include <new>

namespace ibid {

namespace net = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;

namespace {

constexpr size_t kFirstRead = 512;          // bytes; an idle connection holds no more
constexpr size_t kMaxPipelined = 16 << 10;  // kept while an answer grows
constexpr size_t kWriteSlice = 64 << 10;    // each has the whole write_timeout
constexpr size_t kMaxLinger = 256 << 10;    // read and dropped after a refusal
constexpr std::chrono::seconds kLingerTime(2);
constexpr std::chrono::seconds kTick(10);

std::chrono::nanoseconds in_seconds(double seconds) {
  return std::chrono::nanoseconds(static_cast<int64_t>(seconds * 1e9));
}

void append_chunk(std::string& out, std::string_view body) {
  char size[20];
  out.append(size, static_cast<size_t>(std::to_chars(size, size + sizeof size, body.size(), 16).ptr - size));
  out.append("\r\n").append(body).append("\r\n");
}

WebRequest plain_request(http::request<http::string_body>& message, double arrived) {
  static constexpr http::field kFields[] = {http::field::authorization, http::field::origin, http::field::host};
  static constexpr const char* kOthers[] = {"x-api-key", "x-request-id"};
  static constexpr const char* kNames[] = {"authorization", "origin", "host"};
  WebRequest request;
  request.method = std::string(message.method_string());
  request.target = std::string(message.target());
  for (size_t i = 0; i < std::size(kFields); ++i) {
    if (const auto value = message[kFields[i]]; !value.empty()) request.headers.emplace_back(kNames[i], value);
  }
  for (const char* name : kOthers) {
    if (const auto value = message[name]; !value.empty()) request.headers.emplace_back(name, value);
  }
  request.body = std::move(message.body());
  request.arrived = arrived;
  return request;
}

}  // namespace

HttpSession::HttpSession(std::shared_ptr<HttpShared> shared, net::ip::tcp::socket socket, net::ip::address address)
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
    const Abort cause = Abort::kNoMemory;
    try {
      shared_->service.finish(*exchange_, &cause);
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
  shared_->service.on_connections(--shared_->n_connections);
}

template <typename Step>
void HttpSession::guard(Step step) {
  try {
    step();
  } catch (const std::exception&) {  // no memory: the request ends, nothing else
    try {
      cut(Abort::kNoMemory);
    } catch (const std::exception&) {
      exchange_.reset();
      close();
    }
  }
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
    if (self->phase_ == Phase::kAnswering && self->exchange_ && self->exchange_->generation)
      self->shared_->service.cancel(*self->exchange_);
  });
}

void HttpSession::kill() {
  net::post(stream_.get_executor(), [self = shared_from_this()] { self->guard([&] { self->cut(Abort::kShutdown); }); });
}

// ---- reading -------------------------------------------------------------------------------------------------------

void HttpSession::wait_for_request() {
  phase_ = Phase::kIdle;
  if (shared_->draining && buffer_.size() == 0) return close();
  if (buffer_.size() > 0) return read_header();
  buffer_.clear();
  buffer_.shrink_to_fit();
  stream_.expires_after(in_seconds(shared_->options.idle_timeout));
  watch();
}

// One read that ends with the first bytes of a request, or with the client's going.
void HttpSession::watch() {
  watching_ = true;
  stream_.async_read_some(buffer_.prepare(kFirstRead), [self = shared_from_this()](error_code ec, size_t n) {
    self->guard([&] { self->on_bytes(ec, n); });
  });
}

void HttpSession::on_bytes(error_code ec, size_t n) {
  watching_ = false;
  if (!ec) buffer_.commit(n);
  if (phase_ == Phase::kIdle) {
    if (ec == net::error::operation_aborted) return wait_for_request();  // end_answer() took it back
    if (ec) return close();
    return read_header();
  }
  if (phase_ != Phase::kAnswering) return;
  if (ec) return cut(Abort::kClientGone);
  if (buffer_.size() < kMaxPipelined) watch();
}

void HttpSession::read_header() {
  phase_ = Phase::kHeader;
  arrived_ = shared_->service.now();
  parser_.emplace();
  parser_->header_limit(static_cast<uint32_t>(shared_->options.max_header_bytes));
  parser_->body_limit(static_cast<uint64_t>(shared_->options.max_body_bytes));
  stream_.expires_after(in_seconds(shared_->options.header_timeout));
  http::async_read_header(stream_, buffer_, *parser_, [self = shared_from_this()](error_code ec, size_t) {
    self->guard([&] { self->on_header(ec); });
  });
}

void HttpSession::on_header(error_code ec) {
  if (ec) return refuse(ec);
  phase_ = Phase::kBody;
  arrived_ = shared_->service.now();
  keep_alive_ = parser_->keep_alive() && !shared_->draining;
  head_only_ = parser_->get().method() == http::verb::head;
  chunked_ = parser_->get().version() >= 11;
  // RFC 9112, 3.2: what stands between us and the client may have believed the other one.
  const auto n_hosts = parser_->get().count(http::field::host);
  if (n_hosts > 1) return refuse(400, "The request has more than one Host header.", "bad_host");
  if (n_hosts == 0 && parser_->get().version() >= 11)
    return refuse(400, "The Host header is missing; HTTP/1.1 wants one.", "bad_host");
  const int64_t length = parser_->chunked()          ? shared_->options.max_body_bytes
                         : parser_->content_length() ? static_cast<int64_t>(*parser_->content_length())
                                                     : 0;
  reserved_ = length;
  if ((shared_->body_bytes += length) > shared_->options.max_bodies_bytes) {
    return refuse(429, "Too many large requests arrive at once; try again.", "too_many_bytes");
  }
  if (!beast::iequals(parser_->get()[http::field::expect], "100-continue")) return read_body();
  static constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";
  stream_.expires_after(in_seconds(shared_->options.write_timeout));
  net::async_write(stream_, net::buffer(kContinue), [self = shared_from_this()](error_code e, size_t) {
    self->guard([&] { e ? self->close() : self->read_body(); });
  });
}

void HttpSession::read_body() {
  stream_.expires_after(in_seconds(shared_->options.body_timeout));
  http::async_read(stream_, buffer_, *parser_,
                   [self = shared_from_this()](error_code ec, size_t) { self->guard([&] { self->on_body(ec); }); });
}

void HttpSession::on_body(error_code ec) {
  if (ec) return refuse(ec);
  begin_answer();
}

void HttpSession::refuse(error_code ec) {
  if (ec == beast::error::timeout) {
    shared_->service.refuse(408, "", "", arrived_);  // counted; the socket is closed already
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
  const WebResponse response = shared_->service.refuse(status, message, code, arrived_);
  write_head(response, true, response.body.size());
  out_ += response.body;
  write_out();
}

void HttpSession::release_body() {
  shared_->body_bytes -= reserved_;
  reserved_ = 0;
}

// ---- answering -----------------------------------------------------------------------------------------------------

void HttpSession::begin_answer() {
  phase_ = Phase::kAnswering;
  WebRequest request = plain_request(parser_->get(), arrived_);
  parser_.reset();
  release_body();
  exchange_ = shared_->service.handle(request, [weak = weak_from_this()] {
    if (const auto self = weak.lock())
      net::post(self->stream_.get_executor(), [self] { self->guard([&] { self->on_wake(); }); });
  });
  request = {};
  if (exchange_->response.close) keep_alive_ = false;
  if (!exchange_->generation) {
    const WebResponse& response = exchange_->response;
    write_head(response, true, response.body.size());
    if (!head_only_) out_ += response.body;
    return write_out();
  }
  stream_.expires_never();
  if (buffer_.size() < kMaxPipelined) watch();
  if (exchange_->generation->info().stream) {
    if (!chunked_) keep_alive_ = false;
    write_head(exchange_->response, false, 0);
    write_out();
  }
  tick();
  on_wake();
}

void HttpSession::write_head(const WebResponse& response, bool has_length, size_t length) {
  out_ = "HTTP/1.1 " + std::to_string(response.status) + " ";
  const auto reason = http::obsolete_reason(static_cast<http::status>(response.status));
  out_.append(reason.data(), reason.size());
  out_ += "\r\nContent-Type: " + response.content_type;
  if (has_length) {
    out_ += "\r\nContent-Length: " + std::to_string(length);
  } else if (chunked_) {
    out_ += "\r\nTransfer-Encoding: chunked";
  }
  for (const auto& [name, value] : response.headers) out_.append("\r\n").append(name).append(": ").append(value);
  out_ += "\r\nX-Content-Type-Options: nosniff";
  out_ += keep_alive_ ? "\r\nConnection: keep-alive\r\n\r\n" : "\r\nConnection: close\r\n\r\n";
}

// Once in a while: heals a lost wake-up, and tells proxies that a long prefill is no dead connection.
void HttpSession::tick() {
  quiet_ = true;
  timer_.expires_after(kTick);
  timer_.async_wait([weak = weak_from_this()](error_code ec) {
    const auto self = weak.lock();
    if (ec || !self || self->phase_ != Phase::kAnswering || !self->exchange_) return;
    self->guard([&] {
      if (self->quiet_ && !self->writing_ && self->exchange_->generation->info().stream) {
        self->out_.clear();
        constexpr std::string_view kComment = ": still here\n\n";
        self->chunked_ ? append_chunk(self->out_, kComment) : static_cast<void>(self->out_ += kComment);
        self->write_out();
      }
      self->on_wake();
      if (self->phase_ == Phase::kAnswering) self->tick();
    });
  });
}

void HttpSession::on_wake() {
  if (phase_ != Phase::kAnswering || !exchange_ || !exchange_->generation) return;
  if (exchange_->mailbox->lost()) return cut(Abort::kNoMemory);
  shared_->service.collect(*exchange_);
  const Generation& generation = *exchange_->generation;
  // The rule for slow readers: what is gathered while they do not read has a bound, and passing it ends the stream.
  const auto backlog = static_cast<int64_t>(generation.gathered_bytes());
  if (generation.info().stream && writing_ && backlog > shared_->options.max_stream_backlog)
    return cut(Abort::kSlowReader);
  if (!writing_) pump();
}

void HttpSession::pump() {
  Generation& generation = *exchange_->generation;
  if (!generation.info().stream) {
    if (!generation.finished()) return;
    WebResponse response = generation.response();
    response.headers.insert(response.headers.end(), exchange_->response.headers.begin(),
                            exchange_->response.headers.end());
    exchange_->response.status = response.status;
    write_head(response, true, response.body.size());
    out_ += response.body;
    return write_out();
  }
  std::string events;
  generation.write_events(events);
  if (events.empty()) return;
  if (chunked_) {
    out_.clear();
    append_chunk(out_, events);
    if (generation.done()) out_ += "0\r\n\r\n";
  } else {
    out_ = std::move(events);
  }
  write_out();
}

void HttpSession::write_out() {
  writing_ = true;
  quiet_ = false;
  const size_t n = std::min(out_.size() - written_, kWriteSlice);
  stream_.expires_after(in_seconds(shared_->options.write_timeout));
  net::async_write(stream_, net::buffer(out_.data() + written_, n),
                   [self = shared_from_this(), n](error_code ec, size_t) {
                     self->guard([&] {
                       self->written_ += n;
                       self->on_written(ec);
                     });
                   });
}

void HttpSession::on_written(error_code ec) {
  writing_ = false;
  if (ec) {
    if (phase_ == Phase::kAnswering) return cut(ec == beast::error::timeout ? Abort::kSlowReader : Abort::kClientGone);
    return close();
  }
  if (written_ < out_.size()) return write_out();
  written_ = 0;
  out_.clear();
  if (phase_ == Phase::kClosing) return linger();
  if (!exchange_) return;
  const Generation* generation = exchange_->generation.get();
  const bool streams = generation != nullptr && generation->info().stream;
  if (!streams ? true : generation->done()) return end_answer();
  on_wake();
}

void HttpSession::end_answer() {
  timer_.cancel();
  WebExchange exchange = *std::move(exchange_);
  exchange_.reset();
  shared_->service.finish(exchange, nullptr);
  out_.shrink_to_fit();
  if (!keep_alive_ || shared_->draining) {
    phase_ = Phase::kClosing;
    return linger();
  }
  if (!watching_) return wait_for_request();
  // The pending read has no deadline; take it back and wait anew, with one.
  phase_ = Phase::kIdle;
  stream_.cancel();
}

void HttpSession::cut(Abort cause) {
  timer_.cancel();
  if (exchange_) {
    WebExchange exchange = *std::move(exchange_);
    exchange_.reset();
    shared_->service.finish(exchange, &cause);
  }
  close();
}

// A socket that is closed with bytes unread resets, and the client may lose our answer: read a little before.
void HttpSession::linger() {
  error_code ec;
  stream_.socket().shutdown(net::ip::tcp::socket::shutdown_send, ec);
  if (ec || watching_) return close();
  stream_.expires_after(kLingerTime);
  buffer_.clear();
  drop(kMaxLinger);
}

void HttpSession::drop(size_t left) {
  stream_.async_read_some(buffer_.prepare(kFirstRead), [self = shared_from_this(), left](error_code ec, size_t n) {
    ec || n >= left ? self->close() : self->drop(left - n);
  });
}

void HttpSession::close() {
  phase_ = Phase::kClosing;
  timer_.cancel();
  error_code ec;
  stream_.socket().shutdown(net::ip::tcp::socket::shutdown_both, ec);
  stream_.close();
}

}  // namespace ibid
