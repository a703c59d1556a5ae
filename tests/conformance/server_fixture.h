// A server with a FakeBackend in this process.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "base/json_writer.h"
#include "conformance/fake_backend.h"
#include "conformance/raw_client.h"
#include "server/net/http_server.h"

namespace ibid {

class TestServer {
 public:
  explicit TestServer(ServerOptions options = {}, FakeBackend::Options engine = {}, const std::string& keys = "",
                      bool ready = true)
      : backend(engine) {
    options.port = 0;
    if (options.log_file.empty()) options.log_file = "/dev/null";
    log = *RequestLog::open(options.log_file, true, true);
    front = std::make_unique<FrontDoor>(options, keys.empty() ? ApiKeys() : *ApiKeys::parse(keys), *log);
    http = std::make_unique<HttpServer>(options, *front, *log);
    const Status status = http->listen();
    EXPECT_TRUE(status.ok()) << (status.ok() ? "" : status.error().message);
    http->start();
    if (ready) front->set_backend(&backend);
  }
  ~TestServer() {
    backend.frozen = false;
    http->stop();
    backend.stop();
  }
  int port() const { return http->port(); }

  FakeBackend backend;
  std::unique_ptr<RequestLog> log;
  std::unique_ptr<FrontDoor> front;
  std::unique_ptr<HttpServer> http;
};

// A file for a server's log, gone with this.
class LogFile {
 public:
  LogFile() {
    const int fd = mkstemp(path_);
    EXPECT_GE(fd, 0);
    ::close(fd);
  }
  ~LogFile() { unlink(path_); }
  const char* path() const { return path_; }
  // The requests that it has so far.
  std::vector<Json> requests() const {
    std::ifstream file(path_);
    std::vector<Json> lines;
    for (std::string line; std::getline(file, line);) {
      Result<Json> json = parse_json(line);
      EXPECT_TRUE(json.ok()) << line;
      if (json.ok() && *json->find("event")->string() == "request") lines.push_back(*std::move(json));
    }
    return lines;
  }

 private:
  char path_[64] = "/tmp/ibid-log-XXXXXX";
};

// Waits for what must come about; the deadline is there for what never does, and no test may count on it.
inline bool eventually(const std::function<bool()>& holds, double seconds = 600) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  while (std::chrono::steady_clock::now() < end) {
    if (holds()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return holds();
}

// A 4xx, or the connection closed without one.
inline bool refused_or_closed(RawClient& client) {
  const HttpAnswer a = client.answer();
  return (a.status >= 400 && a.status < 500) || (a.status == 0 && !client.timed_out);
}

inline Json post_json(RawClient& client, const char* path, const std::string& body, int status = 200) {
  const HttpAnswer a = client.post(path, body);
  EXPECT_EQ(a.status, status) << path << body << a.body;
  Result<Json> json = parse_json(a.body);
  EXPECT_TRUE(json.ok()) << a.body;
  return json ? *std::move(json) : Json();
}

inline std::string chat_body(std::string_view user, std::string_view more = "") {
  std::string body = R"({"messages":[{"role":"user","content":)";
  JsonWriter(body).string(user);
  body += "}]";
  if (!more.empty()) body.append(",").append(more);
  return body + "}";
}

// Joins a stream's events for choice `choice`.
inline SseText read_events(const std::string& body, int64_t choice = 0) {
  SseText out;
  size_t at = 0;
  while (at < body.size()) {
    const size_t end = body.find("\n\n", at);
    if (end == std::string::npos) break;
    const std::string event = body.substr(at, end - at);
    at = end + 2;
    if (!event.starts_with("data: ")) continue;
    if (event == "data: [DONE]") {
      out.done = true;
      continue;
    }
    ++out.n_events;
    Result<Json> json = parse_json(event.substr(6));
    EXPECT_TRUE(json.ok()) << event;
    const Json* choices = json.ok() ? json->find("choices") : nullptr;
    if (choices == nullptr || choices->array()->empty()) continue;
    const Json& first = (*choices->array())[0];
    if (*first.find("index")->integer() != choice) continue;
    const Json* delta = first.find("delta");
    const Json* text = delta != nullptr ? delta->find("content") : first.find("text");
    if (text != nullptr && text->string() != nullptr) out.text += *text->string();
    if (const Json* reason = first.find("finish_reason"); reason != nullptr && reason->string() != nullptr)
      out.finish = *reason->string();
  }
  return out;
}

inline std::string content_of(const HttpAnswer& answer, size_t choice = 0) {
  Result<Json> json = parse_json(answer.body);
  if (!json.ok() || json->find("choices") == nullptr) return "no choices in: " + answer.body;
  const Json& c = (*json->find("choices")->array())[choice];
  const Json* text = c.find("message") != nullptr ? c.find("message")->find("content") : c.find("text");
  return *text->string();
}

inline std::string error_param(const HttpAnswer& answer) {
  Result<Json> json = parse_json(answer.body);
  if (!json.ok() || json->find("error") == nullptr) return "no error in: " + answer.body;
  const Json* param = json->find("error")->find("param");
  return param->string() != nullptr ? *param->string() : "null";
}

}  // namespace ibid
