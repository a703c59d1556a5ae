// The server over the real engine.
#include "conformance/engine_server.h"

namespace ibid {
namespace {

TEST(ServerEngine, EveryStreamAmongManyEqualsTheSamplerAlone) {
  EngineOptions options;
  options.max_sequences = 8;
  options.step_tokens = 48;
  EngineServer server(options, 0.0002);
  std::vector<std::thread> clients;
  std::atomic<int> n_right = 0;
  for (uint64_t i = 0; i < 24; ++i) {
    clients.emplace_back([&, i] {
      Request request;
      for (uint64_t k = 0; k < 20 + i; ++k)
        request.prompt.push_back(TokenId{1 + static_cast<int32_t>(testing::mix(i / 4, k) % 63)});
      request.max_tokens = 40;
      request.sampling.seed = i;
      request.sampling.temperature = 0.8f;
      const testing::ExpectedAnswer expected = testing::expected_answer(request, 0, EngineServer::kContext);
      RawClient client(server.port());
      const HttpAnswer a =
          client.post("/v1/completions",
                      "{\"prompt\":" + prompt_json(request.prompt) +
                          ",\"max_tokens\":40,\"temperature\":0.8,\"top_p\":1,\"seed\":" + std::to_string(i) +
                          ",\"stream\":true,\"return_token_ids\":true}",
                      "", 20);
      std::vector<int64_t> wanted;
      for (const TokenId id : expected.tokens) wanted.push_back(raw(id));
      n_right += token_ids(a.body) == wanted && read_events(a.body).done;
    });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(n_right, 24);
  // A request is counted when its answer has been written, which a client may see first.
  EXPECT_TRUE(eventually([&] {
    const HttpAnswer metrics = RawClient(server.port()).get("/metrics");
    return metrics.body.find("ibid_time_to_first_token_seconds_count 24\n") != std::string::npos;
  }));
}

TEST(ServerEngine, ChatGoesThroughTheTemplateAndFindsItsPrefixAgain) {
  EngineServer server({}, 0);
  RawClient client(server.port());
  EXPECT_EQ(client.post("/apply-template", chat_body("HI")).body, R"({"prompt":"USERHI"})");
  const std::string body = chat_body(std::string(100, 'X'), R"("max_tokens":3,"seed":1)");
  const HttpAnswer cold = client.post("/v1/chat/completions", body), warm = client.post("/v1/chat/completions", body);
  EXPECT_EQ(content_of(cold), content_of(warm));
  EXPECT_NE(cold.body.find("\"cached_tokens\":0"), std::string::npos);
  const Result<Json> json = parse_json(warm.body);
  EXPECT_GE(*json->find("usage")->find("prompt_tokens_details")->find("cached_tokens")->integer(),
            96);  // six whole blocks
}

TEST(ServerEngine, NamedTokensAreReportedInsteadOfTheLikeliest) {
  EngineServer server({}, 0);
  RawClient client(server.port());
  const auto tops = [&](const std::string& more) {
    const HttpAnswer a = client.post(
        "/v1/chat/completions",
        chat_body("HI", R"("max_tokens":2,"temperature":0,"logprobs":true,"return_tokens_as_token_ids":true)" + more));
    std::map<std::string, double> out;
    const Result<Json> json = parse_json(a.body);
    if (!json || json->find("choices") == nullptr) return out;
    const Json& first = (*(*json->find("choices")->array())[0].find("logprobs")->find("content")->array())[0];
    for (const Json& top : *first.find("top_logprobs")->array())
      out[*top.find("token")->string()] = top.find("logprob")->number();
    out["drawn " + *first.find("token")->string()] = first.find("logprob")->number();
    return out;
  };
  // Log-probabilities of two of the likeliest twenty tokens, and of the drawn token, which is the first.
  const std::map<std::string, double> all = tops(R"(,"top_logprobs":20)");
  ASSERT_EQ(all.size(), 21u);
  std::vector<std::string> names;
  for (const auto& [name, logprob] : all) {
    if (name.starts_with("token_id:") && !all.contains("drawn " + name)) names.push_back(name);
  }
  ASSERT_EQ(names.size(), 19u);
  const auto id = [](const std::string& name) { return name.substr(9); };
  const std::map<std::string, double> named = tops(R"(,"top_logprobs":5,"logprob_token_ids":[)" + id(names[3]) + "," +
                                                   id(names[11]) + "," + id(names[3]) + "]");
  EXPECT_EQ(named.size(), 4u) << "two, the drawn one among the others, and the drawn one";
  for (const auto& [name, logprob] : named) {
    ASSERT_TRUE(all.contains(name)) << name;
    EXPECT_EQ(logprob, all.at(name)) << name;
  }
  for (const char* wrong :
       {R"("logprob_token_ids":[5])", R"("logprobs":true,"logprob_token_ids":[99999])",
        R"("logprobs":true,"logprob_token_ids":"5")", R"("logprobs":true,"num_beams":2,"logprob_token_ids":[5])"}) {
    const HttpAnswer a = client.post("/v1/chat/completions", chat_body("HI", wrong));
    EXPECT_EQ(a.status, 400) << a.body;
    EXPECT_TRUE(error_param(a).starts_with("logprob_token_ids")) << a.body;
  }
}

TEST(ServerEngine, AKeyLearnsNothingOfWhatAnotherHasAsked) {
  EngineServer server({}, 0, 2000, "secret-key-1\nsecret-key-2\nteam:secret-key-3\nteam:secret-key-4\n");
  RawClient client(server.port());
  const std::string body = chat_body(std::string(100, 'X'), R"("max_tokens":3,"seed":1)");
  const auto cached = [&](const std::string& key) {
    const HttpAnswer a = client.post("/v1/chat/completions", body, "X-Api-Key: secret-key-" + key + "\r\n");
    const Result<Json> json = parse_json(a.body);
    return *json->find("usage")->find("prompt_tokens_details")->find("cached_tokens")->integer();
  };
  EXPECT_EQ(cached("1"), 0);
  EXPECT_EQ(cached("2"), 0);
  EXPECT_EQ(cached("3"), 0);
  for (const char* key : {"1", "2", "3", "4"}) EXPECT_GE(cached(key), 96) << key;
}

// Steps from a client's going until `is_forgotten`; the least of some tries, because between the two looks at the
// engine the machine may do other things.
template <typename Begin, typename IsForgotten>
int64_t steps_until(const EngineServer& server, Begin begin, IsForgotten is_forgotten) {
  int64_t least = 1000;
  for (int i = 0; i < 5 && least > 2; ++i) {
    RawClient client(server.port());
    begin(client);
    const int64_t before = server.stats().n_steps;
    client.close();
    EXPECT_TRUE(eventually(is_forgotten));
    least = std::min(least, server.stats().n_steps - before);
  }
  return least;
}

constexpr const char* kEndless = R"({"prompt":"ABC","max_tokens":400,"ignore_eos":true,"stream":true})";

TEST(ServerEngine, AClientThatGoesFreesItsBlocksWithinTwoStepsInPrefillAndInDecode) {
  EngineOptions options;
  options.max_sequences = 4;
  options.step_tokens = 8;
  options.max_rows = 4;
  EngineServer server(options, 0.02);
  const auto is_free = [&] {
    const EngineStats stats = server.stats();
    return stats.blocks_in_use + stats.n_waiting + stats.n_running == 0;
  };
  const auto in_decode = [](RawClient& client) {
    client.send(RawClient::post_text("/v1/completions", kEndless));
    EXPECT_TRUE(client.receive_until("data: "));
  };
  EXPECT_LE(steps_until(server, in_decode, is_free), 2);
  const auto in_prefill = [&](RawClient& client) {
    client.send(
        RawClient::post_text("/v1/completions", "{\"prompt\":\"" + std::string(400, 'A') + "\",\"max_tokens\":4}"));
    EXPECT_TRUE(eventually([&] { return server.stats().blocks_in_use > 0; }));
  };
  EXPECT_LE(steps_until(server, in_prefill, is_free), 2);
  EXPECT_TRUE(eventually([&] { return server.front().n_active() == 0; }));
}

TEST(ServerEngine, AClientThatGoesFromTheQueueIsForgottenWithinTwoSteps) {
  EngineOptions options;
  options.max_sequences = 1;
  options.max_rows = 1;
  EngineServer server(options, 0.02);
  RawClient running(server.port());
  running.send(RawClient::post_text("/v1/completions", kEndless));
  ASSERT_TRUE(running.receive_until("data: "));
  const auto in_queue = [&](RawClient& client) {
    client.send(RawClient::post_text("/v1/completions", R"({"prompt":"ABC","max_tokens":400})"));
    EXPECT_TRUE(eventually([&] { return server.stats().n_waiting == 1; }));
  };
  EXPECT_LE(steps_until(server, in_queue, [&] { return server.stats().n_waiting == 0; }), 2);
}

TEST(ServerEngine, EngineErrorsAre400AndNameTheField) {
  EngineServer server({}, 0);
  RawClient client(server.port());
  EXPECT_EQ(error_param(client.post("/v1/completions", R"({"prompt":"A","mirostat":2,"mirostat_tau":0})")),
            "mirostat_tau");
  const HttpAnswer empty = client.post(
      "/v1/completions", R"({"prompt":"A","allowed_token_ids":[5],"logit_bias":[[5,false]],"max_tokens":2})");
  EXPECT_EQ(empty.status, 400) << empty.body;
}

}  // namespace
}  // namespace ibid
