#include "bench/load/load_client.h"

#include <algorithm>
#include <boost/asio.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <charconv>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

#include "bench/load/event_reader.h"

namespace ibid::load {

namespace net = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using boost::system::error_code;
using Clock = std::chrono::steady_clock;

class Exchange;

struct LoadState {
  Target target;
  size_t n_streams;
  double timeout;
  Clock::time_point start = Clock::now();
  net::io_context io{1};
  net::executor_work_guard<net::io_context::executor_type> work{io.get_executor()};
  net::ip::tcp::endpoint endpoint;
  std::string resolve_error;

  mutable std::mutex mutex;  // guards answers
  mutable std::condition_variable changed;
  std::vector<LoadAnswer> answers;

  // The client's thread alone:
  std::deque<std::pair<size_t, LoadRequest>> queue;  // wait for their time, or for a stream
  std::vector<std::weak_ptr<Exchange>> exchanges;
  size_t n_running = 0;
  std::thread thread;

  double now() const { return std::chrono::duration<double>(Clock::now() - start).count(); }
  void admit();
  template <typename Change>
  void update(size_t number, Change change) {
    const std::lock_guard lock(mutex);
    change(answers[number]);
  }
};

// One request on a connection of its own.
class Exchange : public std::enable_shared_from_this<Exchange> {
 public:
  Exchange(LoadState& state, size_t number, LoadRequest request)
      : state_(state), number_(number), request_(std::move(request)), stream_(state.io) {
    parser_.body_limit(boost::none);
  }

  void run() {
    stream_.expires_after(std::chrono::nanoseconds(static_cast<int64_t>(state_.timeout * 1e9)));
    stream_.async_connect(state_.endpoint, [self = shared_from_this()](error_code ec) { self->on_connected(ec); });
  }
  void leave() {
    error_code ignored;
    stream_.socket().close(ignored);
  }

 private:
  void on_connected(error_code ec) {
    if (ec) return end("connect: " + ec.message());
    error_code ignored;
    stream_.socket().set_option(net::ip::tcp::no_delay(true), ignored);
    message_.method(request_.body.empty() ? http::verb::get : http::verb::post);
    message_.target(request_.path);
    message_.version(11);
    message_.set(http::field::host, state_.target.host + ":" + std::to_string(state_.target.port));
    message_.set(http::field::connection, "close");
    if (!state_.target.api_key.empty()) message_.set(http::field::authorization, "Bearer " + state_.target.api_key);
    if (!request_.body.empty()) message_.set(http::field::content_type, "application/json");
    message_.body() = std::move(request_.body);
    message_.prepare_payload();
    http::async_write(stream_, message_, [self = shared_from_this()](error_code e, size_t) { self->on_sent(e); });
  }

  void on_sent(error_code ec) {
    if (ec) return end("send: " + ec.message());
    state_.update(number_, [&](LoadAnswer& a) { a.sent = state_.now(); });
    http::async_read_header(stream_, buffer_, parser_,
                            [self = shared_from_this()](error_code e, size_t) { self->on_head(e); });
  }

  void on_head(error_code ec) {
    if (ec) return end("head: " + ec.message());
    const auto& head = parser_.get();
    const auto type = head[http::field::content_type];
    is_stream_ = std::string_view(type.data(), type.size()).starts_with("text/event-stream");
    state_.update(number_, [&](LoadAnswer& a) {
      a.head = state_.now();
      a.status = static_cast<int>(head.result_int());
      a.retry_after = std::string(head[http::field::retry_after]);
    });
    read_on();
  }

  void read_on() {
    if (parser_.is_done()) return end("");
    parser_.get().body().data = piece_;
    parser_.get().body().size = sizeof piece_;
    http::async_read_some(stream_, buffer_, parser_,
                          [self = shared_from_this()](error_code e, size_t) { self->on_piece(e); });
  }

  void on_piece(error_code ec) {
    const std::string_view piece(piece_, sizeof piece_ - parser_.get().body().size);
    const double at = state_.now();
    if (!piece.empty()) {
      state_.update(number_, [&](LoadAnswer& a) {
        if (!is_stream_) {
          a.body.append(piece);
          return;
        }
        events_.push(piece, [&](std::string data) { a.events.push_back({at, std::move(data)}); });
      });
    }
    if (ec && ec != http::error::need_buffer && ec != http::error::end_of_stream) return end("read: " + ec.message());
    if (ec == http::error::end_of_stream && !parser_.is_done()) return end("read: the server closed");
    read_on();
  }

  void end(std::string error) {
    state_.update(number_, [&](LoadAnswer& a) {
      a.end = state_.now();
      a.error = std::move(error);
      a.ended = true;
    });
    state_.changed.notify_all();
    --state_.n_running;
    state_.admit();
  }

  LoadState& state_;
  size_t number_;
  LoadRequest request_;
  beast::tcp_stream stream_;
  beast::flat_buffer buffer_;
  http::request<http::string_body> message_;
  http::response_parser<http::buffer_body> parser_;
  EventReader events_;
  bool is_stream_ = false;
  char piece_[16 << 10];
};

void LoadState::admit() {
  while (!queue.empty() && (n_streams == 0 || n_running < n_streams)) {
    auto [number, request] = std::move(queue.front());
    queue.pop_front();
    ++n_running;
    auto exchange = std::make_shared<Exchange>(*this, number, std::move(request));
    exchanges.resize(std::max(exchanges.size(), number + 1));
    exchanges[number] = exchange;
    exchange->run();
  }
}

Result<Target> Target::parse(const std::string& url) {
  constexpr std::string_view kScheme = "http://";
  if (!url.starts_with(kScheme)) return invalid("'" + url + "' is no address such as http://127.0.0.1:8080", "url");
  std::string rest = url.substr(kScheme.size());
  rest = rest.substr(0, rest.find('/'));
  Target target;
  target.port = 80;
  if (const size_t colon = rest.rfind(':'); colon != std::string::npos && rest.find(']', colon) == std::string::npos) {
    const char* end = rest.data() + rest.size();
    if (const auto [at, ec] = std::from_chars(rest.data() + colon + 1, end, target.port);
        ec != std::errc() || at != end)
      return invalid("'" + url + "' has no port that is a number to 65535", "url");
    rest.resize(colon);
  }
  target.host = rest;
  return target;
}

LoadClient::LoadClient(Target target, int n_streams, double timeout) : state_(std::make_unique<LoadState>()) {
  LoadState& s = *state_;
  s.target = std::move(target);
  s.n_streams = static_cast<size_t>(n_streams);
  s.timeout = timeout;
  error_code ec;
  const auto found = net::ip::tcp::resolver(s.io).resolve(s.target.host, std::to_string(s.target.port), ec);
  if (!ec && !found.empty()) s.endpoint = found.begin()->endpoint();
  s.thread = std::thread([&s] { s.io.run(); });
}

LoadClient::~LoadClient() {
  state_->io.stop();
  state_->thread.join();
}

size_t LoadClient::start(LoadRequest request) {
  LoadState& s = *state_;
  size_t number;
  {
    const std::lock_guard lock(s.mutex);
    number = s.answers.size();
    s.answers.emplace_back();
    s.answers.back().due = std::max(request.at, s.now());
  }
  const auto due = s.start + std::chrono::nanoseconds(static_cast<int64_t>(request.at * 1e9));
  const bool is_due = due <= Clock::now();
  auto begin = [&s, number, request = std::move(request)]() mutable {
    s.queue.emplace_back(number, std::move(request));
    s.admit();
  };
  if (is_due) {  // posts keep their order, timers of one moment do not
    net::post(s.io, std::move(begin));
  } else {
    auto timer = std::make_shared<net::steady_timer>(s.io, due);
    timer->async_wait([timer, begin = std::move(begin)](error_code) mutable { begin(); });
  }
  return number;
}

void LoadClient::leave(size_t number) {
  net::post(state_->io, [&s = *state_, number] {
    if (number >= s.exchanges.size()) return;
    if (const auto exchange = s.exchanges[number].lock()) exchange->leave();
  });
}

// Looks a hundred times a second: waking for every event would cost as much as receiving it.
bool LoadClient::wait(double seconds, const std::function<bool(const std::vector<LoadAnswer>&)>& holds) const {
  const double until = now() + seconds;
  std::unique_lock lock(state_->mutex);
  while (!holds(state_->answers)) {
    if (now() >= until) return false;
    state_->changed.wait_for(lock, std::chrono::milliseconds(10));
  }
  return true;
}

bool LoadClient::wait_for_all(double seconds) const {
  return wait(seconds, [](const std::vector<LoadAnswer>& answers) {
    return std::all_of(answers.begin(), answers.end(), [](const LoadAnswer& a) { return a.ended; });
  });
}

double LoadClient::now() const { return state_->now(); }

std::vector<LoadAnswer> LoadClient::answers() const {
  const std::lock_guard lock(state_->mutex);
  return state_->answers;
}

std::vector<LoadAnswer> run_load(const Target& target, const std::vector<LoadRequest>& requests, int n_streams,
                                 double timeout) {
  LoadClient client(target, n_streams, timeout);
  for (const LoadRequest& request : requests) client.start(request);
  client.wait_for_all(1e6);
  return client.answers();
}

}  // namespace ibid::load
