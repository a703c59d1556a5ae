// A small HTTP server for tests: it sends the responses that a test sets, right or wrong, on 127.0.0.1 and a free port.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/check.h"

namespace ibid {

struct TestRequest {
  std::string target;
  std::map<std::string, std::string> headers;  // names in lower case
};

class TestHttpServer {
 public:
  // The bytes to send, head and body; the connection is closed afterwards.
  using Handler = std::function<std::string(const TestRequest&)>;

  // With `tls`, the server speaks TLS with that context, which must outlive it.
  explicit TestHttpServer(Handler handler, SSL_CTX* tls = nullptr) : handler_(std::move(handler)), tls_(tls) {
    ::signal(SIGPIPE, SIG_IGN);  // a client that hangs up during TLS
    listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    CHECK(::bind(listener_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
    CHECK(::listen(listener_, 64) == 0);
    socklen_t len = sizeof address;
    CHECK(::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &len) == 0);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] { serve(); });
  }
  ~TestHttpServer() {
    stopping_ = true;
    thread_.join();
    ::close(listener_);
  }

  std::string address(const std::string& host = "127.0.0.1") const {
    return (tls_ != nullptr ? "https://" : "http://") + host + ":" + std::to_string(port_);
  }
  std::vector<TestRequest> requests() const {
    std::lock_guard lock(mutex_);
    return requests_;
  }

  // A whole answer with this status line, extra head lines (each with its "\r\n") and body.
  static std::string answer(const std::string& status, const std::string& head, const std::string& body) {
    return "HTTP/1.1 " + status + "\r\n" + head + "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
  }

 private:
  void serve() {
    while (!stopping_) {
      pollfd waiting = {listener_, POLLIN, 0};
      if (::poll(&waiting, 1, 20) <= 0) continue;
      int connection = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
      if (connection < 0) continue;
      timeval patience = {5, 0};
      ::setsockopt(connection, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
      talk(connection);
      ::close(connection);
    }
  }

  void talk(int connection) {
    std::unique_ptr<SSL, void (*)(SSL*)> ssl(tls_ != nullptr ? SSL_new(tls_) : nullptr, &SSL_free);
    if (ssl && (SSL_set_fd(ssl.get(), connection) != 1 || SSL_accept(ssl.get()) != 1)) return;
    std::string head;
    char piece[4096];
    while (head.find("\r\n\r\n") == std::string::npos) {
      ssize_t n = ssl ? SSL_read(ssl.get(), piece, sizeof piece) : ::recv(connection, piece, sizeof piece, 0);
      if (n <= 0) return;
      head.append(piece, static_cast<size_t>(n));
    }
    TestRequest request = parse(head);
    {
      std::lock_guard lock(mutex_);
      requests_.push_back(request);
    }
    std::string out = handler_(request);
    for (size_t sent = 0; sent < out.size();) {
      ssize_t n = ssl ? SSL_write(ssl.get(), out.data() + sent, static_cast<int>(out.size() - sent))
                      : ::send(connection, out.data() + sent, out.size() - sent, MSG_NOSIGNAL);
      if (n <= 0) return;
      sent += static_cast<size_t>(n);
    }
    if (ssl) SSL_shutdown(ssl.get());
  }

  static TestRequest parse(const std::string& head) {
    TestRequest request;
    size_t space = head.find(' ');
    request.target = head.substr(space + 1, head.find(' ', space + 1) - space - 1);
    for (size_t at = head.find("\r\n") + 2; at < head.size();) {
      size_t end = head.find("\r\n", at);
      std::string line = head.substr(at, end - at);
      if (size_t colon = line.find(": "); colon != std::string::npos) {
        std::string name = line.substr(0, colon);
        for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
        request.headers[name] = line.substr(colon + 2);
      }
      at = end + 2;
    }
    return request;
  }

  Handler handler_;
  SSL_CTX* tls_;
  int listener_ = -1;
  int port_ = 0;
  std::atomic<bool> stopping_ = false;
  mutable std::mutex mutex_;
  std::vector<TestRequest> requests_;
  std::thread thread_;
};

// A proxy that tunnels one connection: CONNECT anything:PORT leads to 127.0.0.1:PORT.
class TestTunnel {
 public:
  TestTunnel() {
    listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t len = sizeof address;
    CHECK(::bind(listener_, reinterpret_cast<sockaddr*>(&address), len) == 0 && ::listen(listener_, 1) == 0);
    CHECK(::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &len) == 0);
    address_ = "http://127.0.0.1:" + std::to_string(ntohs(address.sin_port));
    thread_ = std::thread([this] { tunnel(); });
  }
  ~TestTunnel() {
    ::shutdown(listener_, SHUT_RDWR);
    thread_.join();
    ::close(listener_);
  }
  const std::string& address() const { return address_; }
  // The host that the client named; after the connection has ended.
  std::string target() {
    std::lock_guard lock(mutex_);
    return target_;
  }

 private:
  void tunnel() {
    int client = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    if (client < 0) return;
    std::string head;
    char piece[16384];
    while (head.find("\r\n\r\n") == std::string::npos && ::recv(client, piece, 1, 0) == 1) head += piece[0];
    std::string target = head.substr(8, head.find(' ', 8) - 8);
    {
      std::lock_guard lock(mutex_);
      target_ = target;
    }
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(static_cast<uint16_t>(std::stoi(target.substr(target.rfind(':') + 1))));
    int upstream = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(::connect(upstream, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
    const std::string yes = "HTTP/1.1 200 Connection established\r\n\r\n";
    CHECK(::send(client, yes.data(), yes.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(yes.size()));
    pollfd ends[2] = {{client, POLLIN, 0}, {upstream, POLLIN, 0}};
    for (bool open = true; open && ::poll(ends, 2, 5000) > 0;) {
      for (int i = 0; i < 2 && open; ++i) {
        if (ends[i].revents == 0) continue;
        ssize_t n = ::recv(ends[i].fd, piece, sizeof piece, 0);
        open = n > 0 && ::send(ends[1 - i].fd, piece, static_cast<size_t>(n), MSG_NOSIGNAL) == n;
      }
    }
    ::close(client);
    ::close(upstream);
  }

  int listener_ = -1;
  std::string address_;
  std::mutex mutex_;
  std::string target_;
  std::thread thread_;
};

}  // namespace ibid
