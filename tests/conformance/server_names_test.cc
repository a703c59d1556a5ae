// The names under which a model is served.
#include "conformance/server_fixture.h"

namespace ibid {
namespace {

TEST(ServerNames, AModelThatIsServedAloneAnswersToAnyName) {
  TestServer server;
  RawClient client(server.port());
  const HttpAnswer a = client.post("/v1/chat/completions", chat_body("x", R"("model":"gpt-9","max_tokens":2)"));
  EXPECT_EQ(a.status, 200) << a.body;
  EXPECT_NE(a.body.find("\"model\":\"fake-1\""), std::string::npos) << a.body;  // and names its model
  EXPECT_EQ(client.get("/v1/models/gpt-9").status, 404);
}

TEST(ServerNames, AnAliasIsListedAndAnswersUnderItsName) {
  ServerOptions options;
  options.aliases = {"gpt-4o", "team/best \"one\"", "gpt-4o", "fake-1"};
  TestServer server(options);
  RawClient client(server.port());
  const Result<Json> list = parse_json(client.get("/v1/models").body);
  std::string ids;
  for (const Json& model : *list->find("data")->array()) {
    ids += *model.find("id")->string() + "|";
    EXPECT_EQ(*model.find("root")->string(), "fake-1");
  }
  EXPECT_EQ(ids, "fake-1|gpt-4o|team/best \"one\"|");
  EXPECT_NE(client.get("/v1/models/gpt-4o").body.find("\"id\":\"gpt-4o\""), std::string::npos);
  for (const char* stream : {"false", "true"}) {
    const HttpAnswer a = client.post(
        "/v1/chat/completions", chat_body("x", std::string(R"("model":"gpt-4o","max_tokens":1,"stream":)") + stream));
    EXPECT_NE(a.body.find("\"model\":\"gpt-4o\""), std::string::npos) << a.body;
    EXPECT_EQ(a.body.find("fake-1"), std::string::npos) << a.body;
  }
}

TEST(ServerNames, AModelMayBeListedOnceWithItsNamesAndTags) {
  ServerOptions options;
  options.aliases = {"gpt-4o"};
  options.tags = {"chat", "small"};
  for (const bool once : {false, true}) {
    options.list_once = once;
    TestServer server(options);
    RawClient client(server.port());
    const Result<Json> list = parse_json(client.get("/v1/models").body);
    const Json::Array& models = *list->find("data")->array();
    ASSERT_EQ(models.size(), once ? 1u : 2u);
    EXPECT_EQ(*models[0].find("id")->string(), "fake-1");
    for (const Json& model : models) {
      EXPECT_EQ(model.find("aliases")->text(), R"(["fake-1","gpt-4o"])");
      EXPECT_EQ(model.find("tags")->text(), R"(["chat","small"])");
    }
    EXPECT_EQ(client.get("/v1/models/gpt-4o").status, 200) << "asked for by it, it is there";
  }
}

TEST(ServerNames, AServerThatIsStrictAboutNamesRefusesOthers) {
  ServerOptions options;
  options.strict_model = true;
  options.aliases = {"alias"};
  TestServer server(options);
  RawClient client(server.port());
  for (const char* path : {"/v1/chat/completions", "/tokenize", "/apply-template"}) {
    const HttpAnswer a = client.post(path, chat_body("x", R"("model":"gpt-9")"));
    EXPECT_EQ(a.status, 404) << path;
    EXPECT_EQ(error_param(a), "model") << path;
    EXPECT_NE(a.body.find("\"code\":\"model_not_found\""), std::string::npos) << a.body;
    EXPECT_NE(a.body.find("not served here; it answers to"), std::string::npos) << a.body;
    for (const char* model : {"\"fake-1\"", "\"alias\"", "null", "\"\""})
      EXPECT_EQ(client.post(path, chat_body("x", std::string("\"max_tokens\":1,\"model\":") + model)).status, 200)
          << model;
    EXPECT_EQ(client.post(path, chat_body("x", "\"max_tokens\":1")).status, 200) << path;
  }
  EXPECT_EQ(client.get("/v1/models/gpt-9").status, 404);
  // Also where nothing is asked of the model but to be there; and a tag is no other name.
  for (const auto& [path, rest] :
       {std::pair{"/api/chat", R"(,"messages":[]})"}, std::pair{"/api/embed", R"(,"input":""})"},
        std::pair{"/api/embed", R"(,"input":"a"})"}}) {
    EXPECT_EQ(client.post(path, std::string(R"({"model":"gpt-9")") + rest).status, 404) << path << rest;
    EXPECT_EQ(client.post(path, std::string(R"({"model":"fake-1:latest")") + rest).status, 200) << path << rest;
  }
}

}  // namespace
}  // namespace ibid
