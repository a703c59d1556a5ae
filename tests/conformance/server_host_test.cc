// The Host header: one of it, and a name of ours where nothing else keeps other sites' pages out.
#include "conformance/server_fixture.h"

namespace ibid {
namespace {

std::string get(std::string_view path, std::string_view headers) {
  return "GET " + std::string(path) + " HTTP/1.1\r\n" + std::string(headers) + "\r\n";
}

HttpAnswer ask(int port, const std::string& request) {
  RawClient client(port);
  client.send(request);
  return client.answer();
}

std::string error_code(const HttpAnswer& answer) {
  const Result<Json> json = parse_json(answer.body);
  return json.ok() && json->find("error") != nullptr ? *json->find("error")->find("code")->string() : answer.body;
}

TEST(ServerHost, ANameThatWasMadeToLeadToLoopbackIsRefusedOnEveryPath) {
  TestServer server;
  for (const char* path : {"/", "/health", "/v1/models", "/metrics", "/nowhere"}) {
    // The page of such a name is of the same origin as what it asks.
    const HttpAnswer a =
        ask(server.port(),
            get(path, "Host: evil.example:8080\r\nOrigin: http://evil.example:8080\r\nConnection: close\r\n"));
    EXPECT_EQ(a.status, 403) << path;
    EXPECT_EQ(error_code(a), "host_refused") << path;
  }
  const std::string body = chat_body("x", "\"max_tokens\":1");
  const std::string head = "POST /v1/chat/completions HTTP/1.1\r\nContent-Length: " + std::to_string(body.size());
  EXPECT_EQ(ask(server.port(), head + "\r\nHost: evil.example\r\n\r\n" + body).status, 403);
  EXPECT_EQ(server.backend.n_submitted, 0);
  EXPECT_EQ(ask(server.port(), head + "\r\nHost: localhost:8080\r\n\r\n" + body).status, 200);
  EXPECT_EQ(ask(server.port(), get("/health", "Host: [::1]:8080\r\n")).status, 200);
  EXPECT_EQ(ask(server.port(), "GET /health HTTP/1.0\r\n\r\n").status, 200);
}

TEST(ServerHost, NamesCanBeAllowedAndKeysNeedNone) {
  ServerOptions options;
  options.allowed_hosts = {"box.example"};
  TestServer named(options), keyed({}, {}, "secret-key-1");
  EXPECT_EQ(ask(named.port(), get("/v1/models", "Host: box.example\r\n")).status, 200);
  EXPECT_EQ(ask(named.port(), get("/v1/models", "Host: other.example\r\n")).status, 403);
  EXPECT_EQ(ask(keyed.port(), get("/v1/models", "Host: box.example\r\nX-Api-Key: secret-key-1\r\n")).status, 200);
  EXPECT_EQ(ask(keyed.port(), get("/v1/models", "Host: box.example\r\n")).status, 401);
}

TEST(ServerHost, IsThereExactlyOnce) {
  TestServer server;
  for (const std::string& request : {get("/health", ""), get("/health", "Host: localhost\r\nHost: localhost\r\n"),
                                     get("/health", "Host: localhost\r\nhost: evil.example\r\n"),
                                     std::string("GET /health HTTP/1.0\r\nHost: localhost\r\nHost: x\r\n\r\n"),
                                     std::string("POST /tokenize HTTP/1.1\r\nContent-Length: 1000000\r\n\r\n")}) {
    RawClient client(server.port());
    client.send(request);
    const HttpAnswer a = client.answer();
    EXPECT_EQ(a.status, 400) << request;
    EXPECT_EQ(error_code(a), "bad_host") << request;
    EXPECT_TRUE(client.closed_within(600)) << request;
  }
}

}  // namespace
}  // namespace ibid
