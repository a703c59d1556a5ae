// A client made of plain sockets, so that a test can send what no client would.
#pragma once

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ibid {

struct HttpAnswer {
  int status = 0;    // 0: the connection ended without one
  std::string head;  // in lower case
  std::string body;  // chunks joined
  bool complete = false;
};

class RawClient {
 public:
  explicit RawClient(int port, int receive_buffer = 0) {
    fd_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (receive_buffer > 0) setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof receive_buffer);
    const int one = 1;
    setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected_ = connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
  }
  // Of a server at a Unix socket.
  explicit RawClient(const std::string& path) {
    fd_ = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    path.copy(address.sun_path, sizeof address.sun_path - 1);
    connected_ = connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
  }
  virtual ~RawClient() { close(); }
  RawClient(const RawClient&) = delete;
  RawClient& operator=(const RawClient&) = delete;

  bool connected() const { return connected_; }
  bool send(std::string_view text) {
    while (!text.empty()) {
      const ssize_t n = write_some(text);
      if (n <= 0) return false;
      text.remove_prefix(static_cast<size_t>(n));
    }
    return true;
  }
  void half_close() { shutdown(fd_, SHUT_WR); }
  void reset_on_close() {
    const linger at_once = {1, 0};
    setsockopt(fd_, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
  }
  void close() {
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
  }
  // Some more bytes into `buffer`; false at the end or after `seconds`.
  bool receive(double seconds) {
    pollfd p = {fd_, POLLIN, 0};
    if (!has_more() && poll(&p, 1, static_cast<int>(seconds * 1000)) <= 0) {
      timed_out = true;
      return false;
    }
    char bytes[16384];
    const ssize_t n = read_some(bytes, sizeof bytes);
    was_reset = n < 0;
    if (n <= 0) return false;
    buffer.append(bytes, static_cast<size_t>(n));
    return true;
  }
  bool receive_until(std::string_view text, double seconds = 600) {
    while (buffer.find(text) == std::string::npos) {
      if (!receive(seconds)) return false;
    }
    return true;
  }
  // True if the other side closes within `seconds` (what comes before is dropped).
  bool closed_within(double seconds) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
    while (std::chrono::steady_clock::now() < end) {
      timed_out = false;
      if (!receive(0.05) && !timed_out) return true;
    }
    return false;
  }
  HttpAnswer answer(double seconds = 600) {
    HttpAnswer a;
    if (!receive_until("\r\n\r\n", seconds)) return a;
    const size_t end = buffer.find("\r\n\r\n") + 4;
    a.head = buffer.substr(0, end);
    for (char& c : a.head) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    buffer.erase(0, end);
    a.status = std::atoi(a.head.c_str() + 9);
    if (a.status == 100) return answer(seconds);
    if (const size_t length = a.head.find("content-length: "); length != std::string::npos) {
      const size_t n = std::strtoull(a.head.c_str() + length + 16, nullptr, 10);
      while (buffer.size() < n) {
        if (!receive(seconds)) return a;
      }
      a.body = buffer.substr(0, n);
      buffer.erase(0, n);
    } else if (a.head.find("transfer-encoding: chunked") != std::string::npos) {
      for (;;) {
        if (!receive_until("\r\n", seconds)) return a;
        const size_t n = std::strtoull(buffer.c_str(), nullptr, 16);
        buffer.erase(0, buffer.find("\r\n") + 2);
        while (buffer.size() < n + 2) {
          if (!receive(seconds)) return a;
        }
        a.body += buffer.substr(0, n);
        buffer.erase(0, n + 2);
        if (n == 0) break;
      }
    } else if (a.status != 204) {
      while (receive(seconds)) {
      }
      a.body = std::exchange(buffer, {});
    }
    a.complete = true;
    return a;
  }
  HttpAnswer get(std::string_view path, std::string_view headers = "") {
    send("GET " + std::string(path) + " HTTP/1.1\r\nHost: localhost\r\n" + std::string(headers) + "\r\n");
    return answer();
  }
  HttpAnswer erase(std::string_view path, std::string_view headers = "") {
    send("DELETE " + std::string(path) + " HTTP/1.1\r\nHost: localhost\r\n" + std::string(headers) + "\r\n");
    return answer();
  }
  HttpAnswer post(std::string_view path, std::string_view body, std::string_view headers = "", double seconds = 600) {
    send(post_text(path, body, headers));
    return answer(seconds);
  }
  static std::string post_text(std::string_view path, std::string_view body, std::string_view headers = "") {
    return "POST " + std::string(path) +
           " HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: " +
           std::to_string(body.size()) + "\r\n" + std::string(headers) + "\r\n" + std::string(body);
  }

  std::string buffer;
  bool timed_out = false;
  bool was_reset = false;  // and not closed

 protected:
  virtual ssize_t write_some(std::string_view bytes) { return ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL); }
  virtual ssize_t read_some(char* bytes, size_t n) { return recv(fd_, bytes, n, 0); }
  virtual bool has_more() { return false; }  // that was read from the socket already
  int fd_ = -1;

 private:
  bool connected_ = false;
};

// The texts of a stream of server-sent events, joined; `last` is what came before [DONE].
struct SseText {
  std::string text;
  std::string finish;
  int n_events = 0;
  bool done = false;
};

}  // namespace ibid
