// HttpSession: one connection. Private to http_server.cc and http_session.cc, the two files that know Asio and Beast.
//
// A connection is in one of these states, always on its own strand:
//   idle -> header -> body -> answering -> idle | closing
// While an answer grows, a read stays pending that tells us when the client goes (a half-closed socket counts as gone),
// and which keeps the first bytes of a pipelined request.
#pragma once

#include <atomic>
#include <boost/asio.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <map>
#include <mutex>
#include <optional>
#include <set>

#include "server/service.h"

namespace ibid {

class HttpSession;

// What the connections of a server share.
struct HttpShared {
  HttpShared(const ServerOptions& o, Service& s, RequestLog& l) : options(o), service(s), log(l) {}
  const ServerOptions options;
  Service& service;
  RequestLog& log;
  std::atomic<int64_t> body_bytes = 0;  // promised by headers whose bodies have not wholly come
  std::atomic<bool> draining = false;

  std::mutex mutex;
  std::set<HttpSession*> sessions;
  std::map<boost::asio::ip::address, int> per_address;
  std::atomic<int64_t> n_connections = 0;
};

class HttpSession : public std::enable_shared_from_this<HttpSession> {
 public:
  HttpSession(std::shared_ptr<HttpShared> shared, boost::asio::ip::tcp::socket socket,
              boost::asio::ip::address address);
  ~HttpSession();

  void start();
  // From any thread.
  void drain();
  void cancel();
  void kill();

 private:
  using error_code = boost::system::error_code;
  enum class Phase { kIdle, kHeader, kBody, kAnswering, kClosing };

  void wait_for_request();
  void on_bytes(error_code ec, size_t n);
  void read_header();
  void on_header(error_code ec);
  void read_body();
  void on_body(error_code ec);
  void refuse(error_code ec);
  void refuse(int status, const char* message, const char* code);

  void begin_answer();
  void write_head(const WebResponse& response, bool has_length, size_t length);
  void watch();
  void on_wake();
  void pump();
  void write_out();
  void on_written(error_code ec);
  void tick();
  void end_answer();
  void cut(Abort cause);
  void linger();
  void drop(size_t left);
  void close();
  void release_body();
  // Runs a step of the state machine; a failed allocation ends this connection alone.
  template <typename Step>
  void guard(Step step);

  std::shared_ptr<HttpShared> shared_;
  boost::beast::tcp_stream stream_;
  boost::asio::ip::address address_;
  boost::beast::flat_buffer buffer_;
  std::optional<boost::beast::http::request_parser<boost::beast::http::string_body>> parser_;
  std::optional<WebExchange> exchange_;
  boost::asio::steady_timer timer_;
  std::string out_;
  size_t written_ = 0;
  int64_t reserved_ = 0;  // of shared_->body_bytes
  double arrived_ = 0;
  Phase phase_ = Phase::kIdle;
  bool watching_ = false, writing_ = false;
  bool keep_alive_ = true, head_only_ = false, chunked_ = false, quiet_ = false;
};

}  // namespace ibid
