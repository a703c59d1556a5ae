// TlsRelay: the TLS side of one connection. It stands between the client's socket and an HttpSession, which reads and
// writes plain HTTP at the other end of a pair of local sockets, so that nothing in a session knows of TLS: a read can
// be taken back, an end is seen, a reader that does not read is noticed by what the kernel holds, as without it.
//
// Each direction is a loop of read and write over one buffer, so what a relay holds is bounded and slowness passes
// through. On a strand; close() from any thread. Held by its own handlers: it goes when both ends have.
#pragma once

#include <array>
#include <boost/asio/ssl.hpp>

#include "server/net/http_session.h"

namespace ibid {

// The certificate (with its chain) and the key that the options name, read again when their files have changed. One
// thread at a time. `options` outlive it.
class TlsIdentity {
 public:
  // A sentence where the files do not do.
  static Result<std::unique_ptr<TlsIdentity>> open(const ServerOptions& options);
  // For a new connection; those before keep theirs. Files that are invalid are reported once, and the last valid ones
  // hold.
  boost::asio::ssl::context& current(RequestLog& log);

 private:
  // What of a file is another when its content is, however it was written: in place or under another name first.
  struct Stamp {
    uint64_t device = 0, inode = 0;
    int64_t size = 0, seconds = 0, nanoseconds = 0;
    bool operator==(const Stamp&) const = default;
  };
  using Stamps = std::array<Stamp, 2>;

  explicit TlsIdentity(const ServerOptions& options) : options_(options) {}
  Stamps stamps() const;
  Status load();

  const ServerOptions& options_;
  Stamps read_;  // of the files when they were read last
  std::unique_ptr<boost::asio::ssl::context> context_;
};

class TlsRelay : public std::enable_shared_from_this<TlsRelay> {
 public:
  TlsRelay(std::shared_ptr<HttpShared> shared, StreamSocket client, StreamSocket session,
           boost::asio::ssl::context& context);
  ~TlsRelay();
  // The client's end of a connection becomes the session's.
  static StreamSocket put_between(const std::shared_ptr<HttpShared>& shared, StreamSocket client,
                                  boost::asio::ssl::context& context);

  void start();
  void close();

 private:
  using error_code = boost::system::error_code;
  void shake_hands();
  void read_client();
  void read_session();
  void write_client(size_t n);
  void say_goodbye();
  void close_now();
  template <typename Step>
  void guard(Step step);
  template <typename Then>
  void within(double seconds, Then then);

  std::shared_ptr<HttpShared> shared_;
  boost::asio::ssl::stream<StreamSocket> client_;
  StreamSocket session_;
  boost::asio::steady_timer timer_;  // of the handshake, of a write to the client and of the goodbye
  std::array<char, 16 << 10> from_client_, to_client_;
};

}  // namespace ibid
