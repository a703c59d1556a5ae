// Requests that a draining server moves to another replica: the client has one answer, whatever the engine here had
// made when the other began; and what another server sends is checked, line by line.
#include <set>

#include "conformance/two_replicas.h"
#include "server/answer/output_lines.h"
#include "server/routes/request_mover.h"

namespace ibid {
namespace {

// A server that answers each connection with what the test gives it.
class ScriptedReplica {
 public:
  using Answer = std::function<void(const std::string& request, const std::function<void(const std::string&)>& send)>;
  explicit ScriptedReplica(Answer answer) : answer_(std::move(answer)) {
    fd_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t len = sizeof address;
    EXPECT_EQ(::bind(fd_, reinterpret_cast<sockaddr*>(&address), len), 0);
    EXPECT_EQ(::listen(fd_, 64), 0);
    EXPECT_EQ(getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &len), 0);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] { loop(); });
  }
  ~ScriptedReplica() {
    shutdown(fd_, SHUT_RDWR);
    thread_.join();
    ::close(fd_);
  }
  std::string url() const { return "http://127.0.0.1:" + std::to_string(port_); }
  int n_requests() const { return n_requests_; }

 private:
  void loop() {
    for (;;) {
      const int fd = accept4(fd_, nullptr, nullptr, SOCK_CLOEXEC);
      if (fd < 0) return;
      std::string request;
      char bytes[4096];
      // The body has its length in the header.
      size_t wanted = std::string::npos;
      while (request.size() < wanted) {
        const ssize_t n = recv(fd, bytes, sizeof bytes, 0);
        if (n <= 0) break;
        request.append(bytes, static_cast<size_t>(n));
        const size_t end = request.find("\r\n\r\n"), length = request.find("Content-Length: ");
        if (end != std::string::npos) wanted = end + 4 + std::strtoull(request.c_str() + length + 16, nullptr, 10);
      }
      ++n_requests_;
      answer_(request, [fd](const std::string& text) { ::send(fd, text.data(), text.size(), MSG_NOSIGNAL); });
      ::close(fd);
    }
  }
  Answer answer_;
  int fd_ = -1, port_ = 0;
  std::atomic<int> n_requests_ = 0;
  std::thread thread_;
};

constexpr const char* kHead = "HTTP/1.1 200 OK\r\nContent-Type: application/x-ndjson\r\nConnection: close\r\n\r\n";

std::string body_in(const std::string& request) { return request.substr(request.find("\r\n\r\n") + 4); }

// The replica's answer to a request as lines of one token each, however it came.
std::vector<std::string> lines_of(const EngineServer& server, const Api& api, const std::string& request) {
  const std::string all = RawClient(server.port()).post(api.path, body_in(request)).body;
  std::vector<std::string> out;
  for (size_t begin = 0, end; (end = all.find('\n', begin)) != std::string::npos; begin = end + 1) {
    const Result<Json> line = parse_json(all.substr(begin, end - begin));
    EXPECT_TRUE(line.ok()) << all;
    const Json::Array tokens = line ? list_of(*line, "tokens") : Json::Array();
    const std::string text = line ? text_of(*line, "text") : "";
    EXPECT_EQ(tokens.size(), text.size()) << "a token is a letter";
    for (size_t i = 0; i < std::min(tokens.size(), text.size()); ++i) {
      Json one = *line;
      for (Json::Member& member : *one.object()) {
        if (member.first == "tokens") member.second = Json(Json::Array{tokens[i]});
        if (member.first == "text") member.second = Json(text.substr(i, 1));
      }
      const bool is_last = i + 1 == tokens.size();
      std::erase_if(*one.object(), [&](const Json::Member& member) {
        return !is_last && (member.first == "finish" || member.first == "stop_text");
      });
      out.push_back(one.text());
    }
  }
  return out;
}

RequestMover mover_to(EngineServer& server, const std::string& url) {
  return RequestMover(url, kBodyLimits, server.front().movable(), server.log());
}

std::string url_of(const EngineServer& server) { return "http://127.0.0.1:" + std::to_string(server.port()); }

// The body, streamed or not.
std::string streamed(std::string body, bool streams) {
  if (const size_t at = body.find(R"("stream":false)"); at != std::string::npos) body.erase(at, 15);
  return with(body, streams ? R"("stream":true)" : R"("stream":false)");
}

// What is of the server or the moment, and not of the answer, taken out.
std::string lasting(const std::string& answer) {
  static const std::set<std::string> kNames = {"id",
                                               "created",
                                               "created_at",
                                               "completed_at",
                                               "timings",
                                               "total_duration",
                                               "eval_duration",
                                               "prompt_eval_duration",
                                               "item_id",
                                               "ledger",
                                               "cached_tokens",
                                               "cache_read_input_tokens",
                                               "tokens_cached",
                                               "sequence_number"};
  const std::function<void(Json&)> strip = [&](Json& json) {
    if (Json::Array* list = json.array()) std::ranges::for_each(*list, strip);
    if (Json::Object* object = json.object()) {
      std::erase_if(*object, [](const Json::Member& member) { return kNames.contains(member.first); });
      for (Json::Member& member : *object) strip(member.second);
    }
  };
  Result<Json> json = parse_json(answer);
  EXPECT_TRUE(json.ok()) << answer;
  if (json) strip(*json);
  return json ? json->text() : "";
}

// An exchange with the first of two replicas, whose engine stands still after `n_steps`.
struct Asked {
  Asked(TwoReplicas& servers, const Api& api, const std::string& body, int n_tokens = 6) : client(servers.one.port()) {
    client.send(RawClient::post_text(api.path, body, "X-Request-Id: the-one\r\n"));
    EXPECT_TRUE(eventually([&] { return servers.one.stats().generated_tokens >= n_tokens; }));
  }
  RawClient client;
};

TEST(ServerDrain, AnAnswerOfAnyApiIsMovedWithoutACut) {
  for (const Api& api : apis()) {
    for (const bool streams : {false, true}) {
      SCOPED_TRACE(std::string(api.path) + (streams ? " streamed" : ""));
      TwoReplicas servers(12);
      const std::string body = streamed(with_long_answer(servers.two.port(), api), streams);
      const std::string undisturbed = RawClient(servers.two.port()).post(api.path, body).body;
      Asked asked(servers, api, body);
      RequestMover mover = mover_to(servers.one, url_of(servers.two));
      const HttpAnswer moved = asked.client.answer();
      servers.open();
      EXPECT_EQ(moved.status, 200) << moved.body;
      if (streams) {
        EXPECT_EQ(text_in_stream(moved.body), text_in_stream(undisturbed));
        EXPECT_FALSE(text_in_stream(moved.body).empty());
      } else {
        EXPECT_EQ(lasting(moved.body), lasting(undisturbed));
      }
    }
  }
}

TEST(ServerDrain, LogprobsIdsUsageAndMirostatAreThoseOfOneAnswer) {
  for (const char* more : {R"("logprobs":3,"temperature":0.9)", R"("logprobs":2,"mirostat":2,"mirostat_tau":3)",
                           R"("logprobs":1,"bad_words":["A"],"temperature":1.5)"}) {
    TwoReplicas servers(12);
    const Api api = {"/v1/completions",
                     std::string(R"({"prompt":"HELLO","max_tokens":40,"seed":5,"ignore_eos":true,)") +
                         R"("return_token_ids":true,)" + more + "}"};
    const std::string undisturbed = RawClient(servers.two.port()).post(api.path, api.body).body;
    Asked asked(servers, api, api.body);
    RequestMover mover = mover_to(servers.one, url_of(servers.two));
    const HttpAnswer moved = asked.client.answer();
    servers.open();
    EXPECT_EQ(lasting(moved.body), lasting(undisturbed)) << more;
  }
}

TEST(ServerDrain, WhatTheEngineMadeMeanwhileIsNotSentAgain) {
  const Api api = apis().front();
  for (const int n_meanwhile : {0, 1, 5, 200}) {
    TwoReplicas servers(12);
    const std::string undisturbed = whole_text(servers.two.port(), api, api.body);
    ScriptedReplica replica([&](const std::string& request, const auto& send) {
      const std::string rest = RawClient(servers.two.port()).post(api.path, body_in(request)).body;
      const int64_t before = servers.one.stats().generated_tokens;
      servers.gate.let(n_meanwhile);
      EXPECT_TRUE(eventually(
          [&] { return servers.one.stats().generated_tokens >= std::min<int64_t>(before + n_meanwhile, 40); }));
      send(kHead + rest);
    });
    Asked asked(servers, api, api.body);
    RequestMover mover = mover_to(servers.one, replica.url());
    const HttpAnswer moved = asked.client.answer();
    servers.open();
    EXPECT_EQ(text_in(*parse_json(moved.body)), undisturbed) << n_meanwhile;
    EXPECT_EQ(replica.n_requests(), 1);
  }
}

TEST(ServerDrain, AReplicaThatFailsAtAnyPointChangesNothing) {
  const Api api = apis().front();
  TwoReplicas first;
  const std::string undisturbed = whole_text(first.two.port(), api, api.body);
  struct Failure {
    const char* name;
    std::function<std::string(const std::vector<std::string>& lines, size_t n)> text;
  };
  const auto upto = [](const std::vector<std::string>& lines, size_t n) {
    std::string out = kHead;
    for (size_t i = 0; i < n; ++i) out += lines[i] + "\n";
    return out;
  };
  const auto changed = [&](const char* from, const std::string& to) {
    return [=](const std::vector<std::string>& lines, size_t n) {
      std::string line = lines[n];
      if (const size_t at = line.find(from); at != std::string::npos) line.replace(at, std::strlen(from), to);
      return upto(lines, n) + line + "\n";
    };
  };
  const Failure failures[] = {
      {"it breaks off", upto},
      {"it breaks off within a line",
       [&](const auto& lines, size_t n) { return upto(lines, n) + lines[n].substr(0, lines[n].size() / 2); }},
      {"no JSON", [&](const auto& lines, size_t n) { return upto(lines, n) + "what?\n"; }},
      {"a token that the model has not", changed(R"("chosen":[)", R"("chosen":[99)")},
      {"a token of minus one", changed(R"("chosen":[)", R"("chosen":[-)")},
      {"no text", changed(R"("text":)", R"("txet":)")},
      {"a text without end", changed(R"("text":")", R"("text":")" + std::string(100'000, 'x'))},
      {"a line without end",
       [&](const auto& lines, size_t n) { return upto(lines, n) + std::string(kMaxOutputLine + 1, 'x'); }},
      {"candidates that were not asked for",
       changed(R"("position":)", R"("top":[[1,0,0],[1,0,0],[1,0,0]],"position":)")},
      {"an end from outside", changed(R"("drafted":)", R"("finish":"cancelled","stop_text":"","drafted":)")},
      {"an error", changed(R"("drafted":)", R"("finish":"error","error":"No memory.","drafted":)")},
  };
  for (const Failure& failure : failures) {
    for (const size_t n : {size_t{0}, size_t{1}, size_t{7}}) {
      SCOPED_TRACE(std::string(failure.name) + " after " + std::to_string(n));
      TwoReplicas servers(12);
      ScriptedReplica replica([&](const std::string& request, const auto& send) {
        const std::vector<std::string> lines = lines_of(servers.two, api, request);
        EXPECT_GT(lines.size(), 9u);
        if (lines.size() > 9) send(failure.text(lines, n));
        servers.open();
      });
      Asked asked(servers, api, api.body);
      RequestMover mover = mover_to(servers.one, replica.url());
      const HttpAnswer answer = asked.client.answer();
      ASSERT_EQ(answer.status, 200) << answer.body;
      EXPECT_EQ(text_in(*parse_json(answer.body)), undisturbed);
    }
  }
}

// It cannot be told from a replica that draws other tokens, but makes no more of them than the request allows.
TEST(ServerDrain, AReplicaThatGivesMoreTokensThanTheAnswerHasIsCutOff) {
  const Api api = apis().front();
  TwoReplicas servers(12);
  ScriptedReplica replica([&](const std::string& request, const auto& send) {
    std::string lines;
    const std::string line = lines_of(servers.two, api, request).front() + "\n";
    for (int i = 0; i < 200; ++i) lines += line;
    send(kHead + lines);
    servers.open();
  });
  Asked asked(servers, api, api.body);
  RequestMover mover = mover_to(servers.one, replica.url());
  const Result<Json> answer = parse_json(asked.client.answer().body);
  ASSERT_TRUE(answer.ok());
  EXPECT_EQ(at(at(*answer, "usage"), "completion_tokens").text(), "40") << answer->text();
}

TEST(ServerDrain, AReplicaThatIsFullIsAskedAgainAndOneThatRefusesIsNot) {
  const Api api = apis().front();
  for (const bool is_full : {true, false}) {
    TwoReplicas servers(12);
    const std::string undisturbed = whole_text(servers.two.port(), api, api.body);
    std::atomic<int> n = 0;
    ScriptedReplica replica([&](const std::string& request, const auto& send) {
      const std::string status = is_full ? "503 Service Unavailable" : "400 Bad Request";
      if (n++ > 0) return send(kHead + RawClient(servers.two.port()).post(api.path, body_in(request)).body);
      send("HTTP/1.1 " + status + "\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}");
      if (!is_full) servers.open();
    });
    Asked asked(servers, api, api.body);
    RequestMover mover = mover_to(servers.one, replica.url());
    EXPECT_EQ(text_in(*parse_json(asked.client.answer().body)), undisturbed);
    EXPECT_EQ(n, is_full ? 2 : 1);
  }
}

TEST(ServerDrain, KeysAndTheRequestsIdGoWithIt) {
  TwoReplicas servers(12, "red:secret-key-1\n");
  std::string head;
  std::atomic<bool> has_come = false;
  ScriptedReplica replica([&](const std::string& request, const auto&) {
    head = request.substr(0, request.find("\r\n\r\n"));
    has_come = true;
  });
  RawClient client(servers.one.port());
  client.send(RawClient::post_text("/v1/completions", R"({"prompt":"HELLO","max_tokens":40,"ignore_eos":true})",
                                   "Authorization: Bearer secret-key-1\r\nX-Request-Id: the-one\r\n"));
  EXPECT_TRUE(eventually([&] { return servers.one.stats().generated_tokens >= 6; }));
  {
    RequestMover mover = mover_to(servers.one, replica.url() + "/root/");
    EXPECT_TRUE(eventually([&] { return has_come.load(); }));
  }
  servers.open();
  EXPECT_EQ(client.answer().status, 200);
  EXPECT_TRUE(head.starts_with("POST /root/v1/completions HTTP/1.1\r\n")) << head;
  EXPECT_NE(head.find("Bearer secret-key-1"), std::string::npos) << head;
  EXPECT_NE(head.find("the-one"), std::string::npos) << head;
}

TEST(ServerDrain, ItsEndCancelsWhatStillComes) {
  const Api api = apis().front();
  TwoReplicas servers(12);
  std::atomic<bool> may_end = false;
  ScriptedReplica replica([&](const std::string& request, const auto& send) {
    send(kHead + lines_of(servers.two, api, request).front() + "\n");
    may_end.wait(false);
  });
  Asked asked(servers, api, streamed(api.body, true));
  {
    RequestMover mover = mover_to(servers.one, replica.url());
    EXPECT_TRUE(eventually([&] { return servers.two.stats().generated_tokens > 0 && replica.n_requests() > 0; }));
    EXPECT_TRUE(eventually([&] {
      asked.client.receive(0.01);
      return text_in_stream(asked.client.buffer).size() > 12;
    }));
  }
  may_end = true;
  may_end.notify_all();
  const HttpAnswer answer = asked.client.answer();
  servers.open();
  EXPECT_NE(answer.body.find("cancelled"), std::string::npos) << answer.body;
}

TEST(ServerDrain, AnAnswerThatIsResumableEndsWithWhatResumesIt) {
  for (const Api& api : apis()) {
    SCOPED_TRACE(api.path);
    TwoReplicas servers(12);
    const std::string whole = with_long_answer(servers.two.port(), api);
    const std::string all = whole_text(servers.two.port(), api, whole);
    Asked asked(servers, api, with(streamed(whole, true), R"("resumable":true)"));
    Asked other(servers, api, streamed(whole, true));
    EXPECT_EQ(servers.one.front().movable().end_resumable(), 1);
    EXPECT_EQ(servers.one.front().movable().end_resumable(), 0);
    const HttpAnswer cut = asked.client.answer();
    servers.open();
    EXPECT_EQ(text_in_stream(other.client.answer().body), all) << "who did not ask has all of it";
    const size_t at = cut.body.find("\"resume\":"), end = cut.body.find('}', at);
    ASSERT_NE(at, std::string::npos) << cut.body;
    const std::string resume = cut.body.substr(at, end + 1 - at);
    EXPECT_EQ(cut.body.substr(end + 1, 8), ",\"seed\":") << cut.body;
    const std::string heard = text_in_stream(cut.body);
    EXPECT_GE(heard.size(), 5u);
    EXPECT_EQ(heard + whole_text(servers.two.port(), api, with(whole, resume)), all);
  }
}

TEST(ServerDrain, WhatCannotBeResumableIsRefusedByName) {
  TwoReplicas servers;
  RawClient client(servers.one.port());
  const HttpAnswer several = client.post("/v1/completions", R"({"prompt":"A","n":2,"resumable":true})");
  EXPECT_EQ(several.status, 400);
  EXPECT_EQ(error_param(several), "resumable") << several.body;
  const std::string other = R"("resume":{"token_ids":[],"outputs":true,"model_digest":"00fe"},"seed":1)";
  const HttpAnswer wrong = client.post("/v1/completions", R"({"prompt":"A",)" + other + "}");
  EXPECT_EQ(error_param(wrong), "resume.model_digest") << "without tokens too: " << wrong.body;
  EXPECT_FALSE(RequestMover::check("replica-2:8080").ok());
  EXPECT_FALSE(RequestMover::check("http://replica-2:8080/?a=b").ok());
  EXPECT_TRUE(RequestMover::check("https://replica-2/llm/").ok());
}

}  // namespace
}  // namespace ibid
