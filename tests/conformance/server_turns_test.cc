// Long work: its order, and that no work is done for disconnected clients.
#include "conformance/server_fixture.h"

namespace ibid {
namespace {

// Handled on a separate thread, and held there on request.
std::string long_body(const std::string& user, int schema) {
  return chat_body(user, R"("max_tokens":1,"response_format":{"type":"json_schema","json_schema":{"name":"s","schema":)"
                         R"({"type":"integer","minimum":)" +
                             std::to_string(schema) + "}}}");
}

// What has come and is not handled yet.
bool wait_for_bytes(TestServer& server, int64_t n) {
  return eventually([&] { return server.front->add_body_bytes(0) == n; });
}

TEST(ServerTurns, RequestsOfGoneClientsArePassedOver) {
  LogFile log;
  ServerOptions options;
  options.log_file = log.path();
  TestServer server(options);
  RawClient first(server.port());
  first.send(RawClient::post_text("/v1/chat/completions", long_body("hold me", 1)));
  ASSERT_TRUE(eventually([&] { return server.backend.n_held == 1; }));
  const int64_t n_before = server.backend.grammars().n_compiled();
  constexpr int kGone = 20;
  for (int i = 0; i < kGone; ++i) {
    RawClient gone(server.port());
    gone.send(RawClient::post_text("/v1/chat/completions", long_body("hey", 100 + i)));
    if (i % 2 == 0) gone.reset_on_close();
  }
  ASSERT_TRUE(eventually([&] { return server.front->n_gone() == kGone; }));
  RawClient last(server.port());
  last.send(RawClient::post_text("/v1/chat/completions", long_body("hey", 2)));
  server.backend.n_let_go = 1;
  EXPECT_EQ(last.answer().status, 200);
  EXPECT_EQ(first.answer().status, 200);
  EXPECT_LE(server.backend.grammars().n_compiled(), n_before + 2) << "one for each who stayed";
  EXPECT_EQ(server.backend.n_submitted, 2);
  first.close(), last.close();
  EXPECT_TRUE(eventually([&] { return server.http->n_connections() == 0; }));
  EXPECT_EQ(server.front->add_body_bytes(0), 0);
  EXPECT_TRUE(eventually([&] { return log.requests().size() == kGone + 2; })) << "each is in the log";
  int n_told = 0;
  for (const Json& line : log.requests()) n_told += *line.find("status")->integer() == 499;
  EXPECT_EQ(n_told, kGone);
}

TEST(ServerTurns, AClientThatGoesBeforeItsBodyIsReadCostsNothing) {
  TestServer server;
  RawClient first(server.port());
  first.send(RawClient::post_text("/v1/chat/completions", long_body("hold me", 1)));
  ASSERT_TRUE(eventually([&] { return server.backend.n_held == 1; }));
  {
    RawClient large(server.port());
    large.send(RawClient::post_text("/v1/completions", R"({"prompt":")" + std::string(200'000, 'x') + "\"}"));
    RawClient vectors(server.port());
    vectors.send(RawClient::post_text("/v1/embeddings", R"({"input":[)" + std::string(40'000, ' ') + R"("a","b"]})"));
    ASSERT_TRUE(eventually([&] { return server.front->add_body_bytes(0) > 200'000; }));
  }
  ASSERT_TRUE(eventually([&] { return server.front->n_gone() == 2; }));
  server.backend.n_let_go = 1;
  EXPECT_EQ(first.answer().status, 200);
  EXPECT_TRUE(eventually([&] { return server.front->add_body_bytes(0) == 0; }));
  EXPECT_EQ(server.backend.n_submitted, 1);
}

TEST(ServerTurns, PromptThatSpellsTheFieldsOfGrammarsWaitsForNone) {
  TestServer server;
  RawClient first(server.port()), other(server.port());
  first.send(RawClient::post_text("/v1/chat/completions", long_body("hold me", 1)));
  ASSERT_TRUE(eventually([&] { return server.backend.n_held == 1; }));
  const std::string body = chat_body(R"(a regex, a schema, "strict": true, \u0041)", R"("max_tokens":1)");
  EXPECT_EQ(other.post("/v1/chat/completions", body).status, 200) << "while the other's grammar waits";
  server.backend.n_let_go = 1;
  EXPECT_EQ(first.answer().status, 200);
}

TEST(ServerTurns, RequestPipelinedAfterALongOneIsAnsweredAfterIt) {
  TestServer server;
  RawClient client(server.port());
  client.send(RawClient::post_text("/v1/chat/completions", long_body("hold me", 1)));
  ASSERT_TRUE(eventually([&] { return server.backend.n_held == 1; }));
  client.send(RawClient::post_text("/v1/chat/completions", long_body("hey", 2)) +
              "GET /version HTTP/1.1\r\nHost: localhost\r\n\r\n");
  server.backend.n_let_go = 1;
  EXPECT_EQ(client.answer().status, 200);
  EXPECT_EQ(client.answer().status, 200);
  EXPECT_NE(client.answer().body.find("version"), std::string::npos);
}

TEST(ServerTurns, LongRequestsOfATenantDelayAnothersByOne) {
  TestServer server({}, {}, "alice:key-of-alice\nbob:key-of-bob");
  const auto ask = [](RawClient& client, const std::string& tenant, const std::string& body) {
    client.send(RawClient::post_text("/v1/chat/completions", body, "X-Api-Key: key-of-" + tenant + "\r\n"));
    return static_cast<int64_t>(body.size());
  };
  constexpr int kAlice = 8;
  std::vector<std::unique_ptr<RawClient>> alice;
  int64_t n_bytes = 0;
  for (int i = 0; i < kAlice; ++i) {
    alice.push_back(std::make_unique<RawClient>(server.port()));
    n_bytes += ask(*alice.back(), "alice", long_body("hold me", i));
  }
  ASSERT_TRUE(eventually([&] { return server.backend.n_held == 1; }));
  RawClient bob(server.port());
  n_bytes += ask(bob, "bob", long_body("hey", 1000));
  ASSERT_TRUE(wait_for_bytes(server, n_bytes));
  server.backend.n_let_go = 1;
  EXPECT_EQ(bob.answer().status, 200);
  EXPECT_LE(server.backend.n_held, 2) << "alice's second is under way at most";
  server.backend.n_let_go = kAlice;
  for (const auto& client : alice) EXPECT_EQ(client->answer().status, 200);
}

TEST(ServerTurns, RefusedRequestsWaitForNoOtherWork) {
  TestServer server({}, {}, "alice:key-of-alice");
  RawClient first(server.port());
  first.send(RawClient::post_text("/v1/chat/completions", long_body("hold me", 1), "X-Api-Key: key-of-alice\r\n"));
  ASSERT_TRUE(eventually([&] { return server.backend.n_held == 1; }));
  RawClient client(server.port());
  EXPECT_EQ(client.post("/v1/chat/completions", long_body("hey", 1)).status, 401);
  EXPECT_EQ(client.post("/v1/nowhere", long_body("hey", 1), "X-Api-Key: key-of-alice\r\n").status, 404);
  EXPECT_EQ(client.post("/health", long_body("hey", 1), "X-Api-Key: key-of-alice\r\n").status, 405);
  server.backend.n_let_go = 1;
  EXPECT_EQ(first.answer().status, 200);
}

}  // namespace
}  // namespace ibid
