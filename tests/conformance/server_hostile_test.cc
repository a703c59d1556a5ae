// Clients that mean harm, or are merely broken.
#include "conformance/server_fixture.h"

namespace ibid {
namespace {

TEST(ServerGone, AClientThatGoesFreesItsPlaceInTheQueueAndInTheStep) {
  FakeBackend::Options engine;
  engine.max_running = 1;
  TestServer server({}, engine);
  RawClient running(server.port()), queued(server.port()), whole(server.port());
  running.send(RawClient::post_text("/v1/completions", R"({"prompt":"x","max_tokens":1000000,"stream":true})"));
  ASSERT_TRUE(running.receive_until("data: "));
  queued.send(RawClient::post_text("/v1/completions", R"({"prompt":"y","max_tokens":1000000,"stream":true})"));
  whole.send(RawClient::post_text("/v1/completions", R"({"prompt":"z","max_tokens":1000000,"n":3})"));
  ASSERT_TRUE(eventually([&] { return server.backend.n_live() == 5; }));
  queued.close();
  EXPECT_TRUE(eventually([&] { return server.backend.n_live() == 4; }));
  whole.half_close();
  EXPECT_TRUE(eventually([&] { return server.backend.n_live() == 1; }));
  running.close();
  EXPECT_TRUE(eventually([&] { return server.backend.n_live() == 0; }));
  EXPECT_EQ(server.backend.n_cancelled, 5);
  EXPECT_TRUE(eventually([&] { return server.front->n_active() == 0 && server.http->n_connections() == 0; }));
}

TEST(ServerQueue, ABurstBeyondTheBoundGets429AtOnce) {
  FakeBackend::Options engine;
  engine.max_running = 1;
  engine.max_waiting = 4;
  TestServer server({}, engine);
  std::vector<std::unique_ptr<RawClient>> clients;
  int n_refused = 0;
  for (int i = 0; i < 12; ++i) {
    clients.push_back(std::make_unique<RawClient>(server.port()));
    clients.back()->send(
        RawClient::post_text("/v1/completions", R"({"prompt":"x","max_tokens":1000000,"stream":true})"));
    ASSERT_TRUE(clients.back()->receive_until("\r\n\r\n"));
    if (clients.back()->buffer.starts_with("HTTP/1.1 429")) {
      ++n_refused;
      EXPECT_NE(clients.back()->buffer.find("Retry-After: "), std::string::npos);
    }
  }
  EXPECT_GE(n_refused, 6);
  EXPECT_LE(n_refused, 8);
}

TEST(ServerSlow, StoppedReaderIsEndedAndSlowsNoOther) {
  ServerOptions options;
  options.max_stream_backlog = 4 << 10;
  options.send_buffer_bytes = 4 << 10;
  FakeBackend::Options engine;
  engine.step_seconds = 0.00002;
  engine.context_len = 1 << 20;
  TestServer server(options, engine);
  RawClient slow(server.port(), 2048);
  slow.send(RawClient::post_text("/v1/completions", R"({"prompt":"x","max_tokens":900000,"stream":true})"));
  ASSERT_TRUE(slow.receive_until("data: "));
  RawClient honest(server.port());
  const HttpAnswer a = honest.post("/v1/completions", R"({"prompt":"y","max_tokens":300,"seed":1,"stream":true})");
  EXPECT_EQ(read_events(a.body).text, FakeBackend::answer("y", 1, 300));
  EXPECT_TRUE(eventually([&] { return server.backend.n_live() == 0; }));
  EXPECT_TRUE(eventually([&] {
    return honest.get("/metrics").body.find("ibid_aborts_total{cause=\"slow_reader\"} 1\n") != std::string::npos;
  }));
}

TEST(ServerSlow, LargeBodyHoldsUpNoOtherClient) {
  ServerOptions options;
  options.io_threads = 1;
  FakeBackend::Options engine;
  std::atomic<bool> gate = false;
  engine.long_text_gate = &gate;
  engine.context_len = 1 << 20;
  TestServer server(options, engine);
  RawClient large(server.port()), gone(server.port()), other(server.port());
  const std::string text(200'000, 'x'), body = "{\"prompt\":\"" + text + "\",\"seed\":1,\"max_tokens\":5}";
  large.send(RawClient::post_text("/v1/completions", body));
  gone.send(RawClient::post_text("/v1/completions", body));
  EXPECT_TRUE(eventually([&] { return server.backend.n_long_texts() > 0; }));
  for (int i = 0; i < 20; ++i) EXPECT_EQ(other.get("/health").status, 200);
  EXPECT_FALSE(large.receive(0)) << "none of them waited for the texts";
  large.timed_out = false;
  gone.close();
  gate = true;
  gate.notify_all();
  EXPECT_EQ(content_of(large.answer()), FakeBackend::answer(text, 1, 5));
  EXPECT_TRUE(eventually([&] { return server.backend.n_live() == 0 && server.http->n_connections() == 2; }));
  const int n_before = server.backend.n_long_texts();
  large.send(RawClient::post_text("/v1/completions", body));  // the server ends while it is handled
  EXPECT_TRUE(eventually([&] { return server.backend.n_long_texts() > n_before; }));
}

TEST(ServerSlow, HeadersBodiesAndIdleConnectionsHaveDeadlines) {
  ServerOptions options;
  options.header_timeout = 0.15;
  options.body_timeout = 0.15;
  options.idle_timeout = 0.3;
  TestServer server(options);
  RawClient header(server.port()), body(server.port()), idle(server.port()), after(server.port());
  header.send("GET /health HTTP/1.1\r\nHo");
  body.send("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{");
  EXPECT_EQ(after.get("/health").status, 200);
  EXPECT_TRUE(header.closed_within(600));
  EXPECT_TRUE(body.closed_within(600));
  EXPECT_TRUE(idle.closed_within(600));
  EXPECT_TRUE(after.closed_within(600));
  EXPECT_TRUE(eventually([&] { return server.http->n_connections() == 0; }));
}

TEST(ServerSlow, AnIdleDeadlineHoldsAfterAStreamToo) {
  ServerOptions options;
  options.idle_timeout = 0.2;
  TestServer server(options);
  RawClient client(server.port());
  EXPECT_EQ(client.post("/v1/completions", R"({"prompt":"x","max_tokens":3,"stream":true})").status, 200);
  EXPECT_TRUE(client.closed_within(600));
}

TEST(ServerLimits, BytesAndConnectionsAreBounded) {
  ServerOptions options;
  options.max_header_bytes = 4 << 10;
  options.max_body_bytes = 64 << 10;
  options.max_connections = 6;
  TestServer server(options);
  {
    RawClient header(server.port()), body(server.port()), chunks(server.port()), promised(server.port());
    header.send("GET /health HTTP/1.1\r\nX-Long: " + std::string(8 << 10, 'a') + "\r\n\r\n");
    EXPECT_EQ(header.answer().status, 431);
    EXPECT_EQ(body.post("/v1/completions", std::string(70 << 10, ' ')).status, 413);
    promised.send("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1073741824\r\n\r\n");
    EXPECT_EQ(promised.answer().status, 413);
    chunks.send("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n");
    for (int i = 0; i < 20 && chunks.send("1000\r\n" + std::string(4096, ' ') + "\r\n"); ++i) {
    }
    EXPECT_TRUE(refused_or_closed(chunks));
  }
  EXPECT_TRUE(eventually([&] { return server.http->n_connections() == 0; }));
  std::vector<std::unique_ptr<RawClient>> clients;
  for (int i = 0; i < 6; ++i) {
    clients.push_back(std::make_unique<RawClient>(server.port()));
    EXPECT_EQ(clients.back()->get("/health").status, 200);
  }
  RawClient one_more(server.port());
  EXPECT_EQ(one_more.answer().status, 503);
  clients.clear();
  EXPECT_TRUE(eventually([&] { return RawClient(server.port()).get("/health").status == 200; }));
}

// Bodies count as they arrive: a client that only announces one holds up no other client, and arriving data is bounded.
TEST(ServerLimits, BodiesCountByWhatHasArrivedOfThem) {
  ServerOptions options;
  options.max_body_bytes = 8 << 20;
  options.max_bodies_bytes = 1 << 20;
  options.body_timeout = 60;
  FakeBackend::Options engine;
  engine.context_len = 1 << 20;
  TestServer server(options, engine);
  const auto head = [](size_t length) {
    return "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: " + std::to_string(length) + "\r\n\r\n";
  };
  const std::string body = "{\"prompt\":\"" + std::string(300 << 10, 'x') + "\",\"seed\":1,\"max_tokens\":5}";
  std::vector<std::unique_ptr<RawClient>> silent;
  for (int i = 0; i < 8; ++i) {
    silent.push_back(std::make_unique<RawClient>(server.port()));
    silent.back()->send(head(8 << 20) + "{");
  }
  RawClient honest(server.port());
  EXPECT_EQ(honest.post("/v1/completions", body).status, 200);
  // Two hold 600 of the 896 KiB that large ones may; the third goes beyond, the fourth of chunks at half as much.
  std::vector<std::unique_ptr<RawClient>> slow;
  for (int i = 0; i < 2; ++i) {
    slow.push_back(std::make_unique<RawClient>(server.port()));
    slow.back()->send(head(body.size() + 1) + body);
  }
  const auto arrived = [&](int64_t n) {
    return eventually([&] {
      return honest.get("/metrics").body.find("\nibid_body_bytes " + std::to_string(n) + "\n") != std::string::npos;
    });
  };
  const auto length = static_cast<int64_t>(body.size());
  ASSERT_TRUE(arrived(8 + 2 * length));
  EXPECT_EQ(RawClient(server.port()).post("/v1/completions", body).status, 429);
  RawClient chunks(server.port());
  chunks.send("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n");
  for (int i = 0; i < 44 && chunks.send("1000\r\n" + std::string(4096, ' ') + "\r\n"); ++i) {
  }
  EXPECT_EQ(chunks.answer().status, 429);
  // Small ones have a part of their own, and all of it is free again once the slow ones are gone.
  RawClient fill(server.port());
  fill.send(head(body.size()) + body.substr(0, 290 << 10));
  ASSERT_TRUE(arrived(8 + 2 * length + (290 << 10)));
  EXPECT_EQ(RawClient(server.port()).post("/v1/completions", R"({"prompt":"a","max_tokens":4,"seed":1})").status, 200);
  slow.clear();
  fill.close();
  ASSERT_TRUE(arrived(8));
  EXPECT_EQ(RawClient(server.port()).post("/v1/completions", body + std::string(500 << 10, ' ')).status, 200);
  EXPECT_TRUE(arrived(8));
}

// What is made at once counts among the answers until it has been read.
TEST(ServerLimits, AnswersMadeAtOnceCountUntilTheyAreRead) {
  ServerOptions options;
  options.max_answers_bytes = 3 << 20;
  options.send_buffer_bytes = 4 << 10;
  TestServer server(options);
  const auto body = [](size_t n) { return R"({"with_pieces":true,"content":")" + std::string(n, 'x') + "\"}"; };
  RawClient slow(server.port(), 2048), honest(server.port());
  slow.send(RawClient::post_text("/tokenize", body(60'000)));
  ASSERT_TRUE(slow.receive_until("\"piece\""));
  const HttpAnswer full = honest.post("/tokenize", body(60'000));
  EXPECT_EQ(full.status, 429) << full.body.substr(0, 200);
  EXPECT_EQ(honest.post("/tokenize", body(100)).status, 200);
  const HttpAnswer large = honest.post("/tokenize", body(200'000));
  EXPECT_EQ(large.status, 400);
  EXPECT_NE(large.body.find("--max-answers-bytes"), std::string::npos);
  slow.close();
  EXPECT_TRUE(eventually([&] { return honest.post("/tokenize", body(60'000)).status == 200; }));
  for (int i = 0; i < 5; ++i) EXPECT_EQ(honest.post("/tokenize", body(60'000)).status, 200) << i;
}

TEST(ServerLimits, NoLargeBodyIsReadWithoutAKey) {
  TestServer server({}, {}, "somebody:secret-key");
  RawClient stranger(server.port()), small(server.port()), known(server.port());
  const std::string head = "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n";
  stranger.send(head + "Authorization: Bearer another-key\r\n\r\n");
  const HttpAnswer told = stranger.answer();
  EXPECT_EQ(told.status, 401);
  EXPECT_NE(told.body.find("invalid_api_key"), std::string::npos);
  EXPECT_TRUE(stranger.closed_within(600));
  EXPECT_EQ(small.post("/v1/completions", R"({"prompt":"a"})").status, 401);
  EXPECT_EQ(small.get("/health").status, 200) << "the connection of a small one stays";
  known.send(head + "Authorization: Bearer secret-key\r\n\r\n");
  EXPECT_FALSE(known.receive(0.2));
  known.send("{\"prompt\":\"a\",\"max_tokens\":1" + std::string(1000000 - 29, ' ') + "}");
  EXPECT_EQ(known.answer().status, 200);
}

TEST(ServerPipelining, RequestsThatComeTogetherAreAnsweredInOrder) {
  TestServer server;
  RawClient client(server.port());
  client.send(RawClient::post_text("/v1/completions", R"({"prompt":"a","max_tokens":4,"seed":1,"stream":true})") +
              RawClient::post_text("/v1/completions", R"({"prompt":"b","max_tokens":4,"seed":1})") +
              "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_EQ(read_events(client.answer().body).text, FakeBackend::answer("a", 1, 4));
  EXPECT_EQ(content_of(client.answer()), FakeBackend::answer("b", 1, 4));
  EXPECT_EQ(client.answer().status, 200);
}

TEST(ServerHttp, SupportsOldHttpAndExpectAndHead) {
  TestServer server;
  RawClient old(server.port());
  const std::string body = R"({"prompt":"a","max_tokens":4,"seed":1,"stream":true})";
  old.send("POST /v1/completions HTTP/1.0\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body);
  EXPECT_EQ(read_events(old.answer().body).text, FakeBackend::answer("a", 1, 4));
  RawClient expects(server.port());
  expects.send("POST /tokenize HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: 15\r\n\r\n");
  ASSERT_TRUE(expects.receive_until("100 Continue"));
  expects.send(R"({"content":"a"})");
  EXPECT_EQ(expects.answer().status, 200);
  RawClient head(server.port());
  head.send("HEAD /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
  while (head.receive(2)) {
  }
  EXPECT_TRUE(head.buffer.ends_with("\r\n\r\n"));
  RawClient chunked(server.port());
  chunked.send(
      "POST /tokenize HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: "
      "chunked\r\n\r\n8;ext=1\r\n{\"conten\r\n7\r\nt\":\"a\"}\r\n0\r\n\r\n");
  EXPECT_EQ(chunked.answer().body.substr(0, 15), "{\"tokens\":[97],");
}

TEST(ServerLife, DrainingEndsIdleConnectionsAndLetsStreamsEnd) {
  FakeBackend::Options engine;
  engine.step_seconds = 0.002;
  TestServer server({}, engine);
  RawClient idle(server.port()), stream(server.port());
  EXPECT_EQ(idle.get("/health").status, 200);
  stream.send(RawClient::post_text("/v1/completions", R"({"prompt":"x","max_tokens":50,"seed":1,"stream":true})"));
  ASSERT_TRUE(stream.receive_until("data: "));
  server.front->set_draining();
  server.http->drain();
  EXPECT_TRUE(idle.closed_within(600));
  EXPECT_EQ(read_events(stream.answer().body).text, FakeBackend::answer("x", 1, 50));
  EXPECT_TRUE(eventually([&] { return server.http->n_connections() == 0; }));
  EXPECT_FALSE(RawClient(server.port()).connected());
}

TEST(ServerLife, RequestsStillRunningAtTheDeadlineAreCancelledWithAReason) {
  TestServer server;
  RawClient stream(server.port()), whole(server.port());
  stream.send(RawClient::post_text("/v1/completions", R"({"prompt":"x","max_tokens":1000000,"stream":true})"));
  ASSERT_TRUE(stream.receive_until("data: "));
  whole.send(RawClient::post_text("/v1/completions", R"({"prompt":"x","max_tokens":1000000})"));
  ASSERT_TRUE(eventually([&] { return server.backend.n_live() == 2; }));
  server.http->drain();
  server.http->cancel_all();
  const SseText events = read_events(stream.answer().body);
  EXPECT_EQ(events.finish, "cancelled");
  EXPECT_TRUE(events.done);
  EXPECT_EQ(whole.answer().status, 503);
  EXPECT_TRUE(eventually([&] { return server.http->n_connections() == 0; }));
}

TEST(ServerLife, APortInUseIsOneSentence) {
  TestServer first;
  ServerOptions options;
  options.port = first.port();
  HttpServer second(options, *first.front, *first.log);
  const Status status = second.listen();
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().kind, ErrorKind::kExhausted);
  EXPECT_NE(status.error().message.find("is in use by another program"), std::string::npos);
}

}  // namespace
}  // namespace ibid
