// What clients send that is not the plainest form: other spellings of a path, a BOM, content types of all kinds; and
// what a browser sends for the page of another site.
#include "conformance/server_fixture.h"

namespace ibid {
namespace {

std::string error_code(const HttpAnswer& answer) {
  const Result<Json> json = parse_json(answer.body);
  return json.ok() && json->find("error") != nullptr ? *json->find("error")->find("code")->string() : answer.body;
}

HttpAnswer send(RawClient& client, const std::string& path, const std::string& headers, const std::string& body) {
  client.send("POST " + path + " HTTP/1.1\r\nHost: localhost\r\nContent-Length: " + std::to_string(body.size()) +
              "\r\n" + headers + "\r\n" + body);
  return client.answer();
}

TEST(ServerClients, AModelsNameMayBePercentEncoded) {
  TestServer server;
  RawClient client(server.port());
  for (const char* name : {"fake-1", "fake%2D1", "fake%2d1", "%66%61%6b%65%2d%31", "fake-1?x=%zz"}) {
    const HttpAnswer a = client.get(std::string("/v1/models/") + name);
    EXPECT_EQ(a.status, 200) << name;
    EXPECT_NE(a.body.find("\"id\":\"fake-1\""), std::string::npos) << name;
  }
  for (const char* name : {"fake%2", "fake%", "fake%zz1", "fake-1%00", "fake%252D1", "org%2Fother", "fake-1/", ""})
    EXPECT_EQ(client.get(std::string("/v1/models/") + name).status, 404) << name;
  EXPECT_NE(client.get("/v1/models/org%2Fother").body.find("The model \\\"org/other\\\" is not served"),
            std::string::npos);
}

TEST(ServerClients, PathsMayLackTheVersion) {
  TestServer server;
  RawClient client(server.port());
  EXPECT_EQ(client.get("/models").body, client.get("/v1/models").body);
  EXPECT_EQ(client.get("/models/fake-1").body, client.get("/v1/models/fake-1").body);
  EXPECT_EQ(client.get("/models/other").status, 404);
  EXPECT_EQ(content_of(client.post("/completions", R"({"prompt":"a","max_tokens":4,"seed":1})")),
            FakeBackend::answer("a", 1, 4));
  EXPECT_EQ(content_of(client.post("/chat/completions", chat_body("a", R"("max_tokens":4,"seed":1)"))),
            FakeBackend::answer(FakeBackend::chat_prompt("a"), 1, 4));
  EXPECT_EQ(client.get("/completions").status, 405);
  const std::string metrics = client.get("/metrics").body;
  for (const char* wanted : {"responses_total{route=\"chat\",status=\"2xx\"} 1\n",
                             "responses_total{route=\"completions\",status=\"2xx\"} 1\n",
                             "responses_total{route=\"models\",status=\"2xx\"} 4\n"})
    EXPECT_NE(metrics.find(wanted), std::string::npos) << wanted;
}

TEST(ServerClients, AByteOrderMarkBeforeTheJsonIsSkipped) {
  TestServer server;
  RawClient client(server.port());
  const std::string mark = "\xef\xbb\xbf";
  for (const char* path : {"/v1/completions", "/tokenize"})
    EXPECT_EQ(client.post(path, mark + R"({"prompt":"a","max_tokens":1})").status, 200) << path;
  for (const std::string& body :
       {mark + mark + R"({"prompt":"a"})", mark, "\xef\xbb" + std::string(R"({"prompt":"a"})"),
        "{" + mark + R"("prompt":"a"})", std::string("\xfe\xff{}")})
    EXPECT_EQ(client.post("/tokenize", body).status, 400) << body;
}

TEST(ServerClients, JsonIsReadUnderAnyTypeThatDoesNotExcludeIt) {
  TestServer server;
  RawClient client(server.port());
  const std::string body = R"({"prompt":"a"})";
  EXPECT_EQ(send(client, "/tokenize", "", body).status, 200);
  for (const char* type :
       {"application/json", "application/json; charset=utf-8", "application/json;charset=\"UTF-8\"", "Application/JSON",
        "text/plain", "text/plain; charset=us-ascii", "application/x-www-form-urlencoded", "application/octet-stream",
        "application/vnd.api+json; version=1; Charset=utf8", "*/*", "nonsense", ";", ""})
    EXPECT_EQ(send(client, "/tokenize", "Content-Type: " + std::string(type) + "\r\n", body).status, 200) << type;
  for (const char* type : {"multipart/form-data; boundary=x", "Multipart/Mixed", "application/json; charset=utf-16",
                           "application/json; charset=ISO-8859-1", "application/json;a=b; charset=\"latin1\"",
                           "text/plain;CHARSET=shift_jis"})
    EXPECT_EQ(send(client, "/tokenize", "Content-Type: " + std::string(type) + "\r\n", body).status, 415) << type;
  EXPECT_EQ(send(client, "/tokenize", "Content-Encoding: identity\r\n", body).status, 200);
  EXPECT_EQ(send(client, "/tokenize", "Content-Encoding: gzip\r\n", body).status, 415);
  const HttpAnswer a = send(client, "/v1/chat/completions", "Content-Type: multipart/form-data; boundary=x\r\n", body);
  EXPECT_EQ(error_code(a), "unsupported_media_type");
  EXPECT_NE(a.body.find("multipart/form-data"), std::string::npos) << a.body;
  EXPECT_EQ(server.backend.n_submitted, 0);
}

struct FromAPage {
  const char* method;
  const char* path;
  const char* headers;
  bool is_refused;
};

// What browsers send without asking first.
constexpr FromAPage kFromPages[] = {
    {"POST", "/v1/completions", "Origin: http://evil.example\r\nContent-Type: text/plain\r\n", true},
    {"POST", "/v1/completions", "Origin: null\r\nContent-Type: text/plain\r\n", true},
    {"POST", "/v1/completions", "Sec-Fetch-Site: cross-site\r\nContent-Type: text/plain\r\n", true},
    {"POST", "/v1/completions",
     "Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: navigate\r\nContent-Type: application/x-www-form-urlencoded\r\n",
     true},
    {"POST", "/v1/completions", "Sec-Fetch-Site: same-site\r\nContent-Type: multipart/form-data\r\n", true},
    {"GET", "/metrics", "Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: no-cors\r\n", true},
    {"GET", "/", "Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: navigate\r\nSec-Fetch-Dest: iframe\r\n", false},
    {"GET", "/", "Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: navigate\r\n", false},  // a link is followed
    {"GET", "/metrics", "Sec-Fetch-Site: none\r\nSec-Fetch-Mode: navigate\r\n", false},
    {"POST", "/v1/completions", "Sec-Fetch-Site: same-origin\r\nOrigin: http://localhost\r\n", false},
    {"POST", "/v1/completions", "Sec-Fetch-Site: none\r\nContent-Type: text/plain\r\n", false},
    {"POST", "/v1/completions", "Content-Type: text/plain\r\n", false},  // no browser
};

HttpAnswer ask(RawClient& client, const FromAPage& row, const std::string& more = "") {
  const std::string body = row.method == std::string_view("POST") ? R"({"prompt":"a","max_tokens":1})" : "";
  client.send(std::string(row.method) + " " + row.path + " HTTP/1.1\r\nHost: localhost\r\nContent-Length: " +
              std::to_string(body.size()) + "\r\n" + row.headers + more + "\r\n" + body);
  return client.answer();
}

TEST(ServerOrigin, CrossSiteRequestsAreRefusedWithKeysToo) {
  TestServer open, keyed({}, {}, "secret-key-1");
  RawClient client(open.port()), with_key(keyed.port());
  for (const FromAPage& row : kFromPages) {
    for (const HttpAnswer& a : {ask(client, row),
                                // The browser repeats these credentials by itself.
                                ask(with_key, row, "Authorization: Basic bWU6c2VjcmV0LWtleS0x\r\n")}) {
      EXPECT_EQ(a.status, row.is_refused ? 403 : 200) << row.path << "\n" << row.headers << a.body;
      if (row.is_refused) {
        EXPECT_EQ(error_code(a), "origin_refused");
      }
    }
  }
}

TEST(ServerOrigin, CorsAllowsWhatItNames) {
  ServerOptions one, all;
  one.cors_origin = "http://good.example";
  all.cors_origin = "*";
  TestServer named(one), open(all);
  RawClient good(named.port()), any(open.port());
  const FromAPage fetched = {"POST", "/v1/completions", "Sec-Fetch-Site: cross-site\r\nContent-Type: text/plain\r\n",
                             false};
  EXPECT_EQ(ask(good, fetched, "Origin: http://good.example\r\n").status, 200);
  EXPECT_EQ(ask(good, fetched, "Origin: http://evil.example\r\n").status, 403);
  EXPECT_EQ(ask(good, fetched).status, 403);
  EXPECT_EQ(ask(any, fetched, "Origin: http://evil.example\r\n").status, 200);
  EXPECT_EQ(ask(any, fetched).status, 200);
}

}  // namespace
}  // namespace ibid
