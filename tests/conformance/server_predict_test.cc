// Vertex AI's /predict: the answers of other routes, those that each instance has alone, in their order.
#include "conformance/server_fixture.h"

namespace ibid {
namespace {

const Json& prediction(const Json& answer, size_t i) { return (*answer.find("predictions")->array())[i]; }

TEST(ServerPredict, InstancesAreAnsweredAsTheirRoutesAnswerThem) {
  TestServer server;
  RawClient client(server.port());
  const std::string chat = R"("messages":[{"role":"user","content":"hi"}],"max_tokens":8,"seed":3)";
  const std::string text = R"("prompt":"hi","max_tokens":8,"seed":4)";
  const Json answer =
      post_json(client, "/predict",
                R"({"instances":[{"@requestFormat":"chatCompletions",)" + chat + R"(},{)" + text +
                    R"(,"@requestFormat":"/v1/completions"},{"@requestFormat":"embeddings","input":"hey"},)" +
                    R"({"@requestFormat":"tokenize","content":"ab"}],"parameters":{}})");
  ASSERT_EQ(answer.find("predictions")->array()->size(), 4u);
  const auto choice = [](const Json& of) { return (*of.find("choices")->array())[0].text(); };
  EXPECT_EQ(choice(prediction(answer, 0)), choice(post_json(client, "/v1/chat/completions", "{" + chat + "}")));
  EXPECT_EQ(choice(prediction(answer, 1)), choice(post_json(client, "/v1/completions", "{" + text + "}")));
  EXPECT_EQ(prediction(answer, 2).find("data")->text(),
            post_json(client, "/v1/embeddings", R"({"input":"hey"})").find("data")->text());
  EXPECT_EQ(prediction(answer, 3).find("tokens")->text(), "[97,98]");
  EXPECT_TRUE(eventually([&] { return server.front->n_active() == 0; }));
}

TEST(ServerPredict, ErrorOfAnInstanceStandsInItsPlace) {
  TestServer server;
  RawClient client(server.port());
  const std::string wrong = R"({"@requestFormat":"completions","prompt":"a","temperature":-1})";
  const std::string right = R"({"@requestFormat":"completions","prompt":"a","max_tokens":2})";
  const Json mixed = post_json(client, "/predict", R"({"instances":[)" + wrong + "," + right + "]}");
  EXPECT_EQ(*prediction(mixed, 0).find("error")->find("param")->string(), "temperature");
  EXPECT_NE(prediction(mixed, 1).find("choices"), nullptr);
  // If none is answered, the status shows it.
  const Json none = post_json(client, "/predict", R"({"instances":[)" + wrong + "," + wrong + "]}", 400);
  EXPECT_EQ(*prediction(none, 1).find("error")->find("param")->string(), "temperature");
}

TEST(ServerPredict, RefusalsNameTheInstance) {
  TestServer server;
  RawClient client(server.port());
  const auto refused = [&](const std::string& body) {
    const HttpAnswer answer = client.post("/predict", body);
    EXPECT_EQ(answer.status, 400) << body << answer.body;
    return error_param(answer);
  };
  EXPECT_EQ(refused("{}"), "instances");
  EXPECT_EQ(refused(R"({"instances":{}})"), "instances");
  EXPECT_EQ(refused(R"({"instances":[]})"), "instances");
  EXPECT_EQ(refused(R"({"instances":[7]})"), "instances[0]");
  EXPECT_EQ(refused(R"({"instances":[{"prompt":"a"}]})"), "instances[0].@requestFormat");
  EXPECT_EQ(refused(R"({"instances":[{"@requestFormat":"predict"}]})"), "instances[0].@requestFormat");
  EXPECT_EQ(refused(R"({"instances":[{"@requestFormat":"completions","prompt":"a","stream":true}]})"),
            "instances[0].stream");
  std::string many = R"({"instances":[{"@requestFormat":"tokenize","content":"a"})";
  for (int i = 1; i < 129; ++i) many += R"(,{"@requestFormat":"tokenize","content":"a"})";
  EXPECT_EQ(refused(many + "]}"), "instances");
  EXPECT_EQ(client.post("/predict", "[").status, 400);
  EXPECT_EQ(client.post("/predict", "[]").status, 400);
}

TEST(ServerPredict, LeavingClientCancelsAllInstances) {
  TestServer server({}, {.step_seconds = 0.005, .answer_len = 1000});
  {
    RawClient client(server.port());
    const std::string one = R"({"@requestFormat":"completions","prompt":"a","max_tokens":1000})";
    client.send(RawClient::post_text("/predict", R"({"instances":[)" + one + "," + one + "," + one + "]}"));
    EXPECT_TRUE(eventually([&] { return server.backend.n_live() == 3; }));
  }
  EXPECT_TRUE(eventually([&] { return server.backend.n_live() == 0 && server.front->n_active() == 0; }));
}

TEST(ServerPredict, IsOfTheTenantWhoseKeyAsks) {
  LogFile file;
  ServerOptions options;
  options.log_file = file.path();
  TestServer server(options, {}, "red:key-of-the-red\nblue:key-of-the-blue");
  RawClient client(server.port());
  const std::string body = R"({"instances":[{"@requestFormat":"completions","prompt":"a","max_tokens":2}]})";
  EXPECT_EQ(client.post("/predict", body).status, 401);
  const HttpAnswer answer = client.post("/predict", body, "Authorization: Bearer key-of-the-blue\r\n");
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.body.find("error"), std::string::npos);
  EXPECT_TRUE(eventually([&] { return file.requests().size() == 3; }));
  const std::vector<Json> lines = file.requests();
  const auto of_blue = std::ranges::count_if(lines, [](const Json& line) {
    return line.find("tenant") != nullptr && line.find("tenant")->string() != nullptr &&
           *line.find("tenant")->string() == "blue";
  });
  EXPECT_EQ(of_blue, 2) << "the request and its instance";
}

}  // namespace
}  // namespace ibid
