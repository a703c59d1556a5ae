// Clients that go: before their answer, in the middle, or the moment they have it; and what the log and the metrics
// report.
#include "conformance/server_fixture.h"

namespace ibid {
namespace {

ServerOptions logged_to(const LogFile& log) {
  ServerOptions options;
  options.log_file = log.path();
  return options;
}

std::string text_of(const Json& line, const char* name) {
  const Json* value = line.find(name);
  return value != nullptr && value->string() != nullptr ? *value->string() : "none";
}

TEST(ServerGoing, ClientThatClosesOnTheLastByteHadAWholeAnswer) {
  constexpr int kTries = 150;
  LogFile log;
  TestServer server(logged_to(log));
  for (int i = 0; i < kTries; ++i) {
    RawClient stream(server.port()), whole(server.port());
    stream.send(RawClient::post_text("/v1/completions", R"({"prompt":"x","max_tokens":3,"stream":true})"));
    whole.send(RawClient::post_text("/v1/completions", R"({"prompt":"x","max_tokens":3})"));
    ASSERT_TRUE(stream.receive_until("data: [DONE]"));
    stream.close();
    ASSERT_TRUE(whole.answer().complete);
    whole.close();
  }
  ASSERT_TRUE(eventually([&] { return log.requests().size() == size_t{2 * kTries}; }));
  // None of them is kept until some deadline: its place and its descriptor are free.
  EXPECT_TRUE(eventually([&] { return server.http->n_connections() == 0; })) << server.http->n_connections();
  std::map<std::string, int> finishes;
  for (const Json& line : log.requests()) ++finishes[text_of(line, "finish")];
  EXPECT_EQ(finishes, (std::map<std::string, int>{{"length", 2 * kTries}}));
  EXPECT_NE(RawClient(server.port()).get("/metrics").body.find("ibid_aborts_total{cause=\"client_gone\"} 0\n"),
            std::string::npos);
}

TEST(ServerGoing, ClientThatLeavesBeforeAnyAnswerIsLoggedAs499) {
  LogFile log;
  TestServer server(logged_to(log));
  RawClient before(server.port()), within(server.port());
  before.send(RawClient::post_text("/v1/completions", R"({"prompt":"x","max_tokens":1000000})"));
  within.send(RawClient::post_text("/v1/chat/completions", chat_body("x", R"("max_tokens":1000000,"stream":true)")));
  ASSERT_TRUE(within.receive_until("data: "));
  ASSERT_TRUE(eventually([&] { return server.backend.n_live() == 2; }));
  before.close();
  within.close();
  ASSERT_TRUE(eventually([&] { return log.requests().size() == 2; }));
  for (const Json& line : log.requests()) {
    const bool saw_the_head = text_of(line, "route") == "chat";
    EXPECT_EQ(*line.find("status")->integer(), saw_the_head ? 200 : 499) << line.text();
    EXPECT_EQ(text_of(line, "finish"), "client_gone") << line.text();
  }
  const std::string metrics = RawClient(server.port()).get("/metrics").body;
  for (const char* wanted :
       {"ibid_responses_total{route=\"completions\",status=\"4xx\"} 1\n",
        "ibid_responses_total{route=\"chat\",status=\"2xx\"} 1\n", "ibid_errors_total{kind=\"client_gone\"} 1\n",
        "ibid_aborts_total{cause=\"client_gone\"} 2\n"})
    EXPECT_NE(metrics.find(wanted), std::string::npos) << wanted;
}

TEST(ServerGoing, RequestCutByShutdownBeforeAnyAnswerIsLoggedAs503) {
  LogFile log;
  {
    TestServer server(logged_to(log));
    RawClient client(server.port());
    client.send(RawClient::post_text("/v1/completions", R"({"prompt":"x","max_tokens":1000000})"));
    ASSERT_TRUE(eventually([&] { return server.backend.n_live() == 1; }));
    server.http->stop();
  }
  ASSERT_EQ(log.requests().size(), 1u);
  EXPECT_EQ(*log.requests()[0].find("status")->integer(), 503);
  EXPECT_EQ(text_of(log.requests()[0], "finish"), "shutdown");
}

// A request of `size` bytes, whose answer is known.
std::string padded(size_t size) {
  const std::string body = R"({"prompt":"b","max_tokens":4,"seed":1)";
  return RawClient::post_text("/v1/completions", body + std::string(size - body.size() - 1, ' ') + "}");
}

TEST(ServerPipelining, PipelinedRequestsAreAnsweredInOrder) {
  LogFile log;
  TestServer server(logged_to(log));
  size_t n_requests = 0;
  for (const size_t size : {8 << 10, 16 << 10, 17 << 10, 33 << 10, 64 << 10, 200 << 10, 1 << 20}) {
    for (const bool stream : {false, true}) {
      SCOPED_TRACE(std::to_string(size) + (stream ? " after a stream" : " after an answer"));
      RawClient client(server.port());
      const std::string first = R"({"prompt":"a","max_tokens":20,"seed":1)";
      client.send(RawClient::post_text("/v1/completions", first + (stream ? ",\"stream\":true}" : "}")) + padded(size) +
                  "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n");
      const HttpAnswer a = client.answer(), b = client.answer();
      EXPECT_EQ(stream ? read_events(a.body).text : content_of(a), FakeBackend::answer("a", 1, 20));
      EXPECT_EQ(content_of(b), FakeBackend::answer("b", 1, 4));
      EXPECT_EQ(client.answer().status, 200);
      n_requests += 3;
    }
  }
  ASSERT_TRUE(eventually([&] { return log.requests().size() == n_requests; }));
  for (const Json& line : log.requests()) EXPECT_EQ(*line.find("status")->integer(), 200) << line.text();
}

TEST(ServerPipelining, ManySmallRequestsAfterAnAnswerAreAnsweredInOrder) {
  TestServer server;
  RawClient client(server.port());
  std::string many = RawClient::post_text("/v1/completions", R"({"prompt":"a","max_tokens":20,"seed":1})");
  constexpr int kMany = 1000;  // 60 KiB
  for (int i = 0; i < kMany; ++i)
    many += "GET /version HTTP/1.1\r\nHost: localhost\r\nX-Request-Id: r" + std::to_string(i) + "\r\n\r\n";
  client.send(many);
  EXPECT_EQ(content_of(client.answer()), FakeBackend::answer("a", 1, 20));
  for (int i = 0; i < kMany; ++i)
    ASSERT_NE(client.answer().head.find("x-request-id: r" + std::to_string(i) + "\r\n"), std::string::npos) << i;
}

TEST(ServerPipelining, AConnectionThatClosesAfterAnAnswerDoesNotResetIt) {
  TestServer server;
  for (const size_t size : {size_t{100}, size_t{64 << 10}}) {
    RawClient client(server.port());
    client.send(RawClient::post_text("/v1/completions", R"({"prompt":"a","max_tokens":20,"seed":1,"stream":true})",
                                     "Connection: close\r\n") +
                padded(size));
    EXPECT_EQ(read_events(client.answer().body).text, FakeBackend::answer("a", 1, 20));
    EXPECT_FALSE(client.receive(3));
    EXPECT_FALSE(client.timed_out);
    EXPECT_FALSE(client.was_reset) << size;
  }
}

TEST(ServerPipelining, ClientThatLeavesWithManyPipelinedRequestsIsNoticed) {
  TestServer server;
  for (const bool reset : {false, true}) {
    RawClient client(server.port());
    client.send(RawClient::post_text("/v1/completions", R"({"prompt":"a","max_tokens":1000000})") + padded(64 << 10));
    ASSERT_TRUE(eventually([&] { return server.backend.n_live() == 1; }));
    std::this_thread::sleep_for(std::chrono::milliseconds(20));  // until the server has read what it keeps
    if (reset) client.reset_on_close();
    client.close();
    EXPECT_TRUE(eventually([&] { return server.backend.n_live() == 0; })) << reset;
  }
  EXPECT_TRUE(eventually([&] { return server.http->n_connections() == 0; }));
}

}  // namespace
}  // namespace ibid
