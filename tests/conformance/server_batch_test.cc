// Several conversations in one request, and one path for all that a model does.
#include "conformance/server_fixture.h"

namespace ibid {
namespace {

TEST(ServerBatch, OfABatchOfChatsEachIsAnsweredAsAlone) {
  TestServer server;
  RawClient client(server.port());
  const auto conversation = [](const std::string& text) { return R"([{"role":"user","content":")" + text + "\"}]"; };
  const std::string with = R"(,"max_tokens":9,"seed":4,"return_token_ids":true})";
  const auto ask = [&](const std::string& conversations) {
    return client.post("/v1/chat/completions/batch", "{\"messages\":" + conversations + with);
  };
  const Result<Json> both = parse_json(ask("[" + conversation("first") + "," + conversation("second one") + "]").body);
  ASSERT_TRUE(both.ok());
  const Json::Array& choices = *both->find("choices")->array();
  ASSERT_EQ(choices.size(), 2u);
  int64_t n_prompt = 0;
  for (size_t i = 0; i < 2; ++i) {
    const HttpAnswer alone =
        client.post("/v1/chat/completions", "{\"messages\":" + conversation(i == 0 ? "first" : "second one") + with);
    const Result<Json> json = parse_json(alone.body);
    const Json& choice = (*json->find("choices")->array())[0];
    EXPECT_EQ(*choices[i].find("index")->integer(), static_cast<int64_t>(i));
    EXPECT_EQ(choices[i].find("message")->text(), choice.find("message")->text());
    EXPECT_EQ(choices[i].find("token_ids")->text(), choice.find("token_ids")->text());
    EXPECT_EQ(choices[i].find("prompt_token_ids")->text(), json->find("prompt_token_ids")->text());
    n_prompt += *json->find("usage")->find("prompt_tokens")->integer();
  }
  EXPECT_EQ(*both->find("usage")->find("prompt_tokens")->integer(), n_prompt);
  EXPECT_EQ(both->find("prompt_token_ids"), nullptr);

  EXPECT_EQ(error_param(ask(conversation("flat"))), "messages");
  EXPECT_EQ(error_param(ask("[]")), "messages");
  EXPECT_EQ(error_param(ask("[" + conversation("a") + ",7]")), "messages[1]");
  EXPECT_EQ(error_param(ask("[" + conversation("a") + R"(,[{"role":"who","content":"b"}]])")), "messages[1][0].role");
  EXPECT_EQ(error_param(client.post("/v1/chat/completions/batch",
                                    "{\"stream\":true,\"messages\":[" + conversation("a") + "]}")),
            "stream");
  EXPECT_EQ(
      error_param(client.post("/v1/chat/completions/batch", "{\"n\":2,\"messages\":[" + conversation("a") + "]}")),
      "n");
  std::string many = "[" + conversation("a");
  for (int i = 0; i < 256; ++i) many += "," + conversation("a");
  EXPECT_EQ(error_param(ask(many + "]")), "messages");
}

TEST(ServerBatch, InvocationsAreWhatTheirBodiesAreOf) {
  TestServer server;
  RawClient client(server.port());
  const auto without_id = [&](const char* path, const std::string& body) {
    const std::string answer = client.post(path, body).body;
    return answer.substr(answer.find("\"choices\"") != std::string::npos ? answer.find("\"choices\"") : 0);
  };
  const std::string chat = chat_body("x", R"("max_tokens":3,"seed":1)");
  EXPECT_EQ(without_id("/invocations", chat), without_id("/v1/chat/completions", chat));
  const std::string text = R"({"prompt":"x","max_tokens":3,"seed":1})";
  EXPECT_EQ(without_id("/invocations", text), without_id("/v1/completions", text));
  const std::string vector = R"({"input":"hey"})";
  EXPECT_EQ(without_id("/invocations", vector), without_id("/v1/embeddings", vector));
  EXPECT_EQ(error_param(client.post("/invocations", "{}")), "messages");
  EXPECT_EQ(error_param(client.post("/invocations", R"({"query":"q","documents":["a"]})")), "model")
      << "it has no head";
}

}  // namespace
}  // namespace ibid
