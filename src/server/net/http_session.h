// HttpSession: one connection. Private to http_server.cc, http_session.cc (which reads) and
// http_session_answer.cc (which answers), the files that know Asio and Beast.
//
// A connection is in one of these states, always on its own strand:
//   idle -> header -> body -> (handling ->) answering -> idle | closing
// A large body is handled on a thread of its own, where tenants take turns, so that reading and tokenising megabytes
// holds up no other connection. A small one is read at once, which its size bounds; what then proves to need a grammar,
// or to hold many bodies, is put off to the same thread before it has begun. While a request waits to be handled and
// while its answer grows, a read stays pending that reports when the client goes (a half-closed socket counts as gone:
// what waits is then passed over), and which keeps the first bytes of a pipelined request. Where kMaxPipelined of them
// are kept, the rest stays with the kernel and we wait for the connection's end alone. One of these two always holds
#pragma once

#include <atomic>
#include <boost/asio.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <map>
#include <mutex>
#include <optional>
#include <set>

#include "server/access/fair_queue.h"
#include "server/request/picture_fetcher.h"
#include "server/routes/front_door.h"
#include "server/wire/arriving_body.h"
#include "server/wire/http_request_head.h"

namespace ibid {

class HttpSession;
class TlsRelay;

// Of TCP, of a Unix socket, or a pair's end.
using StreamProtocol = boost::asio::generic::stream_protocol;
using StreamSocket = StreamProtocol::socket;

// What the connections of a server share.
struct HttpShared {
  HttpShared(const ServerOptions& o, FrontDoor& f, RequestLog& l, FairQueue& h)
      : options(o), front(f), log(l), heavy(h), fetcher({.hosts = o.picture_hosts, .timeout = o.picture_timeout}) {}
  const ServerOptions options;
  FrontDoor& front;
  RequestLog& log;
  FairQueue& heavy;  // where large bodies are handled
  PictureFetcher fetcher;
  std::atomic<bool> draining = false;

  std::mutex mutex;
  std::set<HttpSession*> sessions;
  std::set<TlsRelay*> relays;
  std::map<boost::asio::ip::address, int> per_address;
  std::atomic<int64_t> n_connections = 0;
};

class HttpSession : public std::enable_shared_from_this<HttpSession> {
 public:
  // `address` of who connects; of a Unix socket none, which is one for all.
  HttpSession(std::shared_ptr<HttpShared> shared, StreamSocket socket, boost::asio::ip::address address);
  ~HttpSession();

  void start();
  // From any thread.
  void drain();
  void cancel();
  void kill();

 private:
  using error_code = boost::system::error_code;
  static constexpr size_t kFirstRead = 512;          // bytes; an idle connection holds no more
  static constexpr size_t kSmallBody = 32 << 10;     // handled at once; costs a millisecond or two
  static constexpr size_t kMaxPipelined = 16 << 10;  // kept while an answer grows; read at once of a large body
  static std::chrono::nanoseconds in_seconds(double seconds) {
    return std::chrono::nanoseconds(static_cast<int64_t>(seconds * 1e9));
  }
  enum class Phase { kIdle, kHeader, kBody, kHandling, kAnswering, kClosing };

  void wait_for_request();
  void begin_request();
  void on_bytes(error_code ec, size_t n);
  void read_header();
  void on_header(error_code ec);
  std::optional<HeadRefusal> check_head();
  void read_body();
  void on_body(error_code ec);
  bool is_large() const;
  bool may_hold(size_t n);
  void refuse(error_code ec);
  void refuse(int status, const char* message, const char* code);

  void handle();
  void handle_apart(WebRequest request);
  void wait_for_model(WebRequest request);
  void wait_for_pictures(WebRequest request, std::vector<std::string> urls);
  void handle_now(WebRequest& request);
  bool pass_over(const WebRequest& request);
  template <typename Step>
  void guard_apart(Step step);
  void take_handled();
  std::function<void()> waker();
  void begin_answer(WebExchange exchange);
  void write_head(const WebResponse& response, std::optional<size_t> length);
  void watch();
  bool is_full() const { return buffer_.size() >= kMaxPipelined; }
  bool hung_up();
  void on_wake();
  void on_instances();
  void pump();
  void write_part();
  void write_piece(std::string piece);
  void write_out();
  void on_written(error_code ec);
  void tick();
  void end_answer();
  void cut(Abort cause);
  void give_up(Abort cause);
  void linger();
  void drop(size_t left);
  void close();
  void release_body();
  // Runs a step of the state machine; a failed allocation ends this connection alone.
  template <typename Step>
  void guard(Step step);

  std::shared_ptr<HttpShared> shared_;
  boost::beast::basic_stream<StreamProtocol> stream_;
  boost::asio::ip::address address_;
  boost::beast::flat_buffer buffer_;
  std::optional<boost::beast::http::request_parser<ArrivingBody>> parser_;
  WebRequest request_;  // the contents of its header; trailers are no part of it
  std::optional<WebExchange> exchange_;
  std::optional<WebExchange> handled_;  // on its way from the other thread; owned by the thread that clears is_handled_
  std::atomic<bool> is_handled_ = false;
  boost::asio::steady_timer timer_;
  std::string out_;
  size_t written_ = 0;
  int64_t counted_ = 0;  // of the front door's body bytes
  double arrived_ = 0;
  size_t n_given_ = 0;      // bytes of the answer that were given to be written since it has been there whole
  double given_since_ = 0;  // then
  Phase phase_ = Phase::kIdle;
  bool watching_ = false, writing_ = false;
  bool taken_back_ = false;  // the pending read is, by the end of its answer
  bool keep_alive_ = true, head_only_ = false, chunked_ = false, quiet_ = false;
  bool empty_line_taken_ = false;
  bool whole_ = false;              // all of the answer is in out_ or written
  std::atomic<bool> gone_ = false;  // the client is, as a read has reported
  bool has_written_ = false;        // some of the answer is written, its status with it
};

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

}  // namespace ibid
