// HttpSession from a whole request to the end of its answer.
#include <algorithm>

#include "base/insist.h"
#include "server/net/http_session.h"
#include "server/wire/http_text.h"

namespace ibid {

namespace net = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;

namespace {

constexpr size_t kWriteSlice = 64 << 10;  // each has the whole write_timeout
constexpr double kLeastRate = 16 << 10;   // bytes a second at which an answer that is there must be read, all in all
constexpr size_t kMaxLinger = 256 << 10;  // read and dropped after a refusal
constexpr std::chrono::seconds kLingerTime(2);
constexpr std::chrono::seconds kTick(10);

// For the log, of an answer of which the client saw nothing. 499 is what nginx writes where the client went first.
int unwritten_status(Abort cause) { return cause == Abort::kShutdown || cause == Abort::kNoMemory ? 503 : 499; }

}  // namespace

void HttpSession::handle() {
  phase_ = Phase::kHandling;
  WebRequest request = std::exchange(request_, {});
  request.body = std::move(parser_->get().body().text);
  request.may_fetch = shared_->fetcher.is_on();
  parser_.reset();
  stream_.expires_never();
  FrontDoor& front = shared_->front;
  const bool is_answered = front.is_answered_at_door(request);
  if (!is_answered && request.body.size() > kSmallBody) return handle_apart(std::move(request));
  if (!is_answered && !front.choose_model(request)) return wait_for_model(std::move(request));
  WebExchange exchange = front.handle(request, waker(), Effort::kBrief);
  if (!exchange.to_fetch.empty()) return wait_for_pictures(std::move(request), std::move(exchange.to_fetch));
  if (exchange.is_put_off) return handle_apart(std::move(request));
  release_body();
  begin_answer(std::move(exchange));
}

// On the thread for what takes long, in its tenant's turn.
void HttpSession::handle_apart(WebRequest given) {
  if (phase_ != Phase::kHandling) return;  // killed while its model was loaded
  if (!watching_ && !gone_) watch();
  given.is_gone = [this] { return gone_.load(); };  // the request's holder keeps us alive
  const auto [tenant, weight] = shared_->front.turn_of(given);
  shared_->heavy.push(tenant, weight, [self = shared_from_this(), request = std::move(given)]() mutable {
    self->guard_apart([&] {
      if (self->pass_over(request)) return;
      if (request.model || self->shared_->front.choose_model(request)) return self->handle_now(request);
      net::post(self->stream_.get_executor(), [self, request = std::move(request)]() mutable {
        self->guard([&] { self->wait_for_model(std::move(request)); });
      });
    });
  });
}

// On the thread that loads models. It is handled apart then, because others wait for their models there.
void HttpSession::wait_for_model(WebRequest given) {
  if (phase_ != Phase::kHandling) return;
  if (!watching_ && !gone_) watch();
  given.is_gone = [this] { return gone_.load(); };
  const std::string model = given.model_name, tenant = given.tenant;
  shared_->front.post_to_loader(model, tenant, [self = shared_from_this(), request = std::move(given)]() mutable {
    self->guard_apart([&] {
      if (self->pass_over(request)) return;
      self->shared_->front.wait_for_model(request);
      if (request.refusal) return self->handle_now(request);
      net::post(self->stream_.get_executor(), [self, request = std::move(request)]() mutable {
        self->guard([&] { self->handle_apart(std::move(request)); });
      });
    });
  });
}

// On a thread that fetches; it is handled apart then.
void HttpSession::wait_for_pictures(WebRequest given, std::vector<std::string> urls) {
  if (phase_ != Phase::kHandling) return;
  if (!watching_ && !gone_) watch();
  given.is_gone = [this] { return gone_.load(); };
  const std::string tenant = shared_->front.turn_of(given).first;
  auto held = std::make_shared<WebRequest>(std::move(given));
  shared_->fetcher.fetch(
      tenant, std::move(urls), [self = shared_from_this()] { return self->gone_.load(); },
      [self = shared_from_this(), held](std::shared_ptr<const FetchedPictures> fetched) {
        self->guard_apart([&] {
          if (self->pass_over(*held)) return;
          held->fetched = std::move(fetched);
          net::post(self->stream_.get_executor(), [self, request = std::move(*held)]() mutable {
            self->guard([&] { self->handle_apart(std::move(request)); });
          });
        });
      });
}

void HttpSession::handle_now(WebRequest& request) {
  WebExchange exchange = shared_->front.handle(request, waker());
  if (exchange.is_put_off) {
    net::post(stream_.get_executor(),
              [self = shared_from_this(), request = std::move(request), urls = std::move(exchange.to_fetch)]() mutable {
                self->guard([&] { self->wait_for_pictures(std::move(request), std::move(urls)); });
              });
    return;
  }
  handled_ = std::move(exchange);
  is_handled_ = true;
  request = {};
  net::post(stream_.get_executor(), [self = shared_from_this()] { self->guard([&] { self->take_handled(); }); });
}

// A request whose client has gone is not begun.
bool HttpSession::pass_over(const WebRequest& request) {
  if (!gone_) return false;
  const Abort cause = Abort::kClientGone;
  WebExchange exchange = shared_->front.unhandled(request);
  exchange.response.status = unwritten_status(cause);
  shared_->front.finish(exchange, &cause);
  net::post(stream_.get_executor(), [self = shared_from_this()] { self->close(); });
  return true;
}

// A step on another thread; a failed allocation ends this connection alone.
template <typename Step>
void HttpSession::guard_apart(Step step) {
  try {
    step();
  } catch (const std::exception&) {
    if (is_handled_.exchange(false)) {
      const Abort cause = Abort::kNoMemory;
      handled_->response.status = unwritten_status(cause);
      shared_->front.finish(*handled_, &cause);
    }
    insist([&] { net::post(stream_.get_executor(), [self = shared_from_this()] { self->close(); }); });
  }
}

void HttpSession::take_handled() {
  if (!is_handled_.exchange(false)) return;
  WebExchange exchange = *std::exchange(handled_, std::nullopt);
  release_body();
  if (phase_ == Phase::kHandling) return begin_answer(std::move(exchange));
  const Abort cause = Abort::kShutdown;  // killed in between
  exchange.response.status = unwritten_status(cause);
  shared_->front.finish(exchange, &cause);
}

std::function<void()> HttpSession::waker() {
  return [weak = weak_from_this()] {
    if (const auto self = weak.lock())
      net::post(self->stream_.get_executor(), [self] { self->guard([&] { self->on_wake(); }); });
  };
}

void HttpSession::begin_answer(WebExchange exchange) {
  phase_ = Phase::kAnswering;
  exchange_ = std::move(exchange);
  whole_ = !exchange_->generation && exchange_->instances.empty();
  has_written_ = false;
  n_given_ = 0;
  if (exchange_->response.close) keep_alive_ = false;
  if (whole_) {
    WebResponse& response = exchange_->response;
    write_head(response, response.body.size());
    if (!head_only_) out_ += response.body;
    response.body = {};  // held once
    return write_out();
  }
  if (gone_) return cut(Abort::kClientGone);
  if (!watching_) watch();  // before anything is written: it may be the first that we hear of a client that has gone
  if (exchange_->generation && exchange_->generation->info().asked.stream) {
    if (!chunked_) keep_alive_ = false;
    write_head(exchange_->response, std::nullopt);
    write_out();
  }
  tick();
  on_wake();
}

void HttpSession::write_head(const WebResponse& response, std::optional<size_t> length) {
  out_ = http_head(response, {.length = length, .chunked = chunked_, .keep_alive = keep_alive_});
}

// Once in a while: heals a lost wake-up, and shows proxies that a long prefill is no dead connection.
void HttpSession::tick() {
  quiet_ = true;
  timer_.expires_after(kTick);
  timer_.async_wait([weak = weak_from_this()](error_code ec) {
    const auto self = weak.lock();
    if (ec || !self || self->phase_ != Phase::kAnswering || !self->exchange_) return;
    self->guard([&] {
      const Generation* generation = self->exchange_->generation.get();
      if (self->quiet_ && !self->writing_ && generation != nullptr && generation->info().asked.stream &&
          !generation->still_here().empty()) {
        self->out_.clear();
        const std::string_view comment = generation->still_here();
        self->chunked_ ? append_chunk(self->out_, comment) : static_cast<void>(self->out_ += comment);
        self->write_out();
      }
      self->on_wake();
      if (self->phase_ == Phase::kAnswering) self->tick();
    });
  });
}

void HttpSession::on_wake() {
  if (phase_ != Phase::kAnswering || !exchange_) return;
  if (!exchange_->instances.empty()) return on_instances();
  if (!exchange_->generation) return;
  if (exchange_->mailbox->lost()) return cut(Abort::kNoMemory);
  if (is_full() && !whole_ && hung_up()) return cut(Abort::kClientGone);
  shared_->front.collect(*exchange_);
  const Generation& generation = *exchange_->generation;
  // The rule for slow readers: what is gathered while they do not read has a bound, and passing it ends the stream.
  const auto backlog = static_cast<int64_t>(generation.gathered_bytes());
  if (generation.info().asked.stream && writing_ && backlog > shared_->options.max_stream_backlog)
    return cut(Abort::kSlowReader);
  if (!writing_) pump();
}

// All come together, when the last has ended.
void HttpSession::on_instances() {
  if (whole_) return;
  for (const WebExchange& instance : exchange_->instances) {
    if (instance.mailbox && instance.mailbox->lost()) return cut(Abort::kNoMemory);
  }
  if (is_full() && hung_up()) return cut(Abort::kClientGone);
  shared_->front.collect(*exchange_);
  if (writing_ || !FrontDoor::are_predicted(*exchange_)) return;
  const WebResponse response = FrontDoor::predictions(*exchange_);
  write_head(response, response.body.size());
  out_ += response.body;
  whole_ = true;
  write_out();
}

void HttpSession::pump() {
  Generation& generation = *exchange_->generation;
  if (!generation.info().asked.stream) {
    if (!generation.finished()) return;
    if (has_written_) return write_part();
    WebResponse response = generation.response();
    response.headers.insert(response.headers.end(), exchange_->response.headers.begin(),
                            exchange_->response.headers.end());
    exchange_->response.status = response.status;
    if (generation.goes_in_parts()) {
      if (!chunked_) keep_alive_ = false;
      write_head(response, std::nullopt);
    } else {
      write_head(response, response.body.size());
      out_ += response.body;
      whole_ = true;
    }
    return write_out();
  }
  std::string events;
  generation.write_events(events);
  if (!events.empty()) write_piece(std::move(events));
}

void HttpSession::write_part() {
  std::string part;
  exchange_->generation->write_part(part);
  write_piece(std::move(part));
}

void HttpSession::write_piece(std::string piece) {
  if (chunked_) {
    out_.clear();
    append_chunk(out_, piece);
    if (exchange_->generation->done()) out_ += "0\r\n\r\n";
  } else {
    out_ = std::move(piece);
  }
  whole_ = exchange_->generation->done();
  write_out();
}

void HttpSession::write_out() {
  writing_ = true;
  quiet_ = false;
  const size_t n = std::min(out_.size() - written_, kWriteSlice);
  double seconds = shared_->options.write_timeout;
  // What an answer holds waits for its reader: one who takes a slice now and then must not have it for hours.
  if (exchange_ && (whole_ || (exchange_->generation && exchange_->generation->finished()))) {
    const double now = shared_->front.now();
    if (n_given_ == 0) given_since_ = now;
    n_given_ += n;
    seconds = std::min(seconds, given_since_ + seconds + static_cast<double>(n_given_) / kLeastRate - now);
  }
  stream_.expires_after(in_seconds(std::max(seconds, 0.0)));
  net::async_write(stream_, net::buffer(out_.data() + written_, n),
                   [self = shared_from_this(), n](error_code ec, size_t n_taken) {
                     self->guard([&] {
                       self->written_ += n;
                       self->has_written_ |= n_taken > 0;
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
  if (whole_) return end_answer();
  on_wake();
}

void HttpSession::end_answer() {
  timer_.cancel();
  WebExchange exchange = *std::move(exchange_);
  exchange_.reset();
  shared_->front.finish(exchange, nullptr);
  out_.shrink_to_fit();
  if (!keep_alive_ || shared_->draining) {
    phase_ = Phase::kClosing;
    return linger();
  }
  if (!watching_) return wait_for_request();
  // The pending read has no deadline; take it back and wait again, with one.
  phase_ = Phase::kIdle;
  taken_back_ = true;
  stream_.cancel();
}

void HttpSession::cut(Abort cause) {
  timer_.cancel();
  if (exchange_) give_up(cause);
  close();
}

void HttpSession::give_up(Abort cause) {
  WebExchange exchange = *std::move(exchange_);
  exchange_.reset();
  if (!has_written_) exchange.response.status = unwritten_status(cause);
  shared_->front.finish(exchange, &cause);
}

// A socket that is closed with bytes unread resets, and the client may lose our answer: read a little before.
void HttpSession::linger() {
  error_code ec;
  stream_.socket().shutdown(net::ip::tcp::socket::shutdown_send, ec);
  const bool read_all = gone_ || (watching_ && buffer_.size() == 0);  // nothing has come that we did not read
  if (ec || read_all) return close();
  if (watching_) return stream_.cancel();  // on_bytes() comes back
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
