// Scores of pairs of texts over the APIs that have them, and what a server of an encoder refuses.
#include "conformance/server_fixture.h"
#include "kernels/math.h"

namespace ibid {
namespace {

FakeBackend::Options reranker(int n_labels = 1) {
  FakeBackend::Options options;
  options.is_encoder = true;
  options.n_labels = n_labels;
  return options;
}

// The fake engine's score for a text that begins with this letter, as the answer reports it.
float score_of(char letter) {
  const double x = (letter - 'm') / 4.0;
  return static_cast<float>(1 / (1 + math::exp(-x)));
}

using Ranked = std::vector<std::pair<int64_t, float>>;
Ranked ranked(const Json& answer, const char* list = "results", const char* score = "relevance_score") {
  Ranked out;
  for (const Json& item : *answer.find(list)->array())
    out.emplace_back(*item.find("index")->integer(), static_cast<float>(item.find(score)->number()));
  return out;
}

TEST(ServerRank, SortsBestFirstAndKeepsTheOrderOfTies) {
  TestServer server({}, reranker());
  RawClient client(server.port());
  const Json all = post_json(client, "/v1/rerank",
                             R"({"model":"fake-1","query":"q","documents":["cat","owl",{"text":"cow"},"zoo"]})");
  EXPECT_EQ(ranked(all), (Ranked{{3, score_of('z')}, {1, score_of('o')}, {0, score_of('c')}, {2, score_of('c')}}));
  EXPECT_EQ(*all.find("model")->string(), "fake-1");
  EXPECT_TRUE(all.find("id")->string()->starts_with("rerank-"));
  EXPECT_EQ((*all.find("results")->array())[0].find("document"), nullptr);
  // Each pair: the query and what stands around it, the document and what ends it.
  EXPECT_EQ(*all.find("usage")->find("total_tokens")->integer(), 4 * (3 + 4));
  for (const char* path : {"/rerank", "/v2/rerank"}) {
    const Json two =
        post_json(client, path, R"({"query":"q","documents":["cat","owl","zoo"],"top_n":2,"return_documents":true})");
    EXPECT_EQ(ranked(two), (Ranked{{2, score_of('z')}, {1, score_of('o')}}));
    EXPECT_EQ(*(*two.find("results")->array())[0].find("document")->find("text")->string(), "zoo");
  }
  const Json raw = post_json(client, "/rerank", R"({"query":"q","documents":["cat"],"top_n":9,"raw_scores":true})");
  EXPECT_EQ(ranked(raw), (Ranked{{0, ('c' - 'm') / 4.0F}}));
}

// As text-embeddings-inference has it: `texts`, and an array alone.
TEST(ServerRank, TextsAreRankedInAnArray) {
  TestServer server({}, reranker());
  RawClient client(server.port());
  const Json all = post_json(client, "/rerank", R"({"query":"q","texts":["cat","zoo"],"return_text":true})");
  ASSERT_NE(all.array(), nullptr);
  ASSERT_EQ(all.array()->size(), 2u);
  const Json& best = (*all.array())[0];
  EXPECT_EQ(*best.find("index")->integer(), 1);
  EXPECT_EQ(static_cast<float>(best.find("score")->number()), score_of('z'));
  EXPECT_EQ(*best.find("text")->string(), "zoo");
  EXPECT_EQ(post_json(client, "/rerank", R"({"query":"q","texts":["cat","zoo"],"top_n":1})").array()->size(), 1u);
  EXPECT_NE(client.post("/rerank", R"({"query":"q","texts":7})").body.find("texts is missing"), std::string::npos);
}

TEST(ServerRank, ScoresPairsInTheirOrder) {
  TestServer server({}, reranker());
  RawClient client(server.port());
  const Json one = post_json(client, "/score", R"({"text_1":"q","text_2":["zoo","cat","owl"]})");
  EXPECT_EQ(ranked(one, "data", "score"), (Ranked{{0, score_of('z')}, {1, score_of('c')}, {2, score_of('o')}}));
  const Json each = post_json(client, "/v1/score", R"({"text_1":["q","longer"],"text_2":["a","b"]})");
  EXPECT_EQ(ranked(each, "data", "score"), (Ranked{{0, score_of('a')}, {1, score_of('b')}}));
  EXPECT_EQ(*each.find("usage")->find("prompt_tokens")->integer(), (3 + 2) + (8 + 2));
}

TEST(ServerRank, TakesVllmsNames) {
  TestServer server({}, reranker());
  RawClient client(server.port());
  const Ranked wanted = {{0, score_of('z')}, {1, score_of('c')}};
  for (const char* names :
       {R"({"queries":"q","documents":["zoo","cat"]})", R"({"queries":["q","q"],"items":["zoo","cat"]})",
        R"({"data_1":"q","data_2":["zoo","cat"]})"}) {
    EXPECT_EQ(ranked(post_json(client, "/score", names), "data", "score"), wanted) << names;
    EXPECT_EQ(ranked(post_json(client, "/invocations", names), "data", "score"), wanted) << names;
  }
  EXPECT_EQ(error_param(client.post("/score", R"({"queries":["a","b"],"documents":["a","b","c"]})")), "queries");
  const Json bare = post_json(client, "/rerank", R"({"query":"q","documents":["cat"],"use_activation":false})");
  EXPECT_EQ(ranked(bare), (Ranked{{0, ('c' - 'm') / 4.0F}}));
  const Json all = post_json(client, "/invocations", R"({"query":"q","documents":["cat"],"max_tokens_per_doc":0})");
  EXPECT_EQ(ranked(all), (Ranked{{0, score_of('c')}}));
}

TEST(ServerRank, CutsDocumentsOnlyWhereItIsAsked) {
  TestServer server({}, reranker());
  RawClient client(server.port());
  const std::string body = R"({"query":"q","documents":["ok",")" + std::string(3000, 'x') + "\"]";
  EXPECT_EQ(error_param(client.post("/rerank", body + "}")), "documents[1]");
  const Json cut = post_json(client, "/rerank", body + R"(,"max_tokens_per_doc":4})");
  EXPECT_EQ(*cut.find("usage")->find("total_tokens")->integer(), (3 + 3) + (3 + 5));
}

// As transformers' longest_first: of two texts of 6 and 8 tokens 3 and 4 are kept of 7, and a short one is kept whole.
TEST(ServerRank, PairsAreCutAtTheLongerText) {
  TestServer server({}, reranker());
  RawClient client(server.port());
  const auto n_tokens = [&](const std::string& query, const std::string& more) {
    const Json answer =
        post_json(client, "/rerank", R"({"query":")" + query + R"(","documents":["zoo-keep"])" + more + "}");
    EXPECT_EQ(ranked(answer), (Ranked{{0, score_of('z')}}));
    return *answer.find("usage")->find("total_tokens")->integer();
  };
  EXPECT_EQ(n_tokens("query?", ""), 6 + 8 + 3);
  EXPECT_EQ(n_tokens("query?", R"(,"truncate_prompt_tokens":10)"), 10);
  EXPECT_EQ(n_tokens("query?", R"(,"truncate_prompt_tokens":17)"), 17);
  EXPECT_EQ(n_tokens("query?", R"(,"truncate_prompt_tokens":5)"), 5);
  EXPECT_EQ(n_tokens("query?", R"(,"truncate_prompt_tokens":-1)"), 17);
  EXPECT_EQ(n_tokens(std::string(3000, 'q'), R"(,"truncate":true)"), 2048);
  EXPECT_EQ(error_param(client.post("/rerank", R"({"query":"q","documents":["a"],"truncate_prompt_tokens":4})")),
            "truncate_prompt_tokens");
  EXPECT_EQ(error_param(client.post("/rerank", R"({"query":"q","documents":["a"],"truncate":"END"})")), "truncate");
}

TEST(ServerRank, RefusalsNameTheField) {
  TestServer server({}, reranker());
  RawClient client(server.port());
  const auto refused = [&](const char* path, const std::string& body) {
    const HttpAnswer answer = client.post(path, body);
    EXPECT_EQ(answer.status, 400) << body << answer.body;
    return error_param(answer);
  };
  EXPECT_EQ(refused("/rerank", "{}"), "query");
  EXPECT_EQ(refused("/rerank", "[]"), "null");
  EXPECT_EQ(refused("/rerank", R"({"query":"","documents":["a"]})"), "query");
  EXPECT_EQ(refused("/rerank", R"({"query":["q"],"documents":["a"]})"), "query");
  EXPECT_EQ(refused("/rerank", R"({"query":"q"})"), "documents");
  EXPECT_EQ(refused("/rerank", R"({"query":"q","documents":"a"})"), "documents");
  EXPECT_EQ(refused("/rerank", R"({"query":"q","documents":[]})"), "documents");
  EXPECT_EQ(refused("/rerank", R"({"query":"q","documents":["a",7]})"), "documents[1]");
  EXPECT_EQ(refused("/rerank", R"({"query":"q","documents":["a",{"title":"b"}]})"), "documents[1]");
  EXPECT_EQ(refused("/rerank", R"({"query":"q","documents":["a"],"top_n":0})"), "top_n");
  EXPECT_EQ(refused("/rerank", R"({"query":"q","documents":["a"],"return_documents":1})"), "return_documents");
  EXPECT_EQ(refused("/rerank", R"({"query":"q","documents":["a"],"rank_fields":["text"]})"), "rank_fields");
  EXPECT_EQ(refused("/score", R"({"text_1":["a","b"],"text_2":["a","b","c"]})"), "text_1");
  EXPECT_EQ(refused("/score", R"({"text_2":"a"})"), "text_1");
  EXPECT_EQ(refused("/v1/embeddings", R"({"input":"a"})"), "pooling");
  EXPECT_EQ(refused("/v1/embeddings", R"({"input":"a","pooling":"rank"})"), "pooling");
  EXPECT_EQ(refused("/v1/completions", R"({"prompt":"a"})"), "model");
  EXPECT_EQ(refused("/v1/chat/completions", chat_body("a")), "model");
  std::string many = R"({"query":"q","documents":["a")";
  for (int i = 0; i < 2048; ++i) many += ",\"a\"";
  EXPECT_EQ(refused("/rerank", many + "]}"), "documents");
  EXPECT_EQ(client.post("/v1/embeddings", R"({"input":"a","pooling":"mean"})").status, 200);
}

TEST(ServerRank, ModelWithoutAHeadRefuses) {
  for (const FakeBackend::Options& engine : {FakeBackend::Options{}, reranker(3)}) {
    TestServer server({}, engine);
    RawClient client(server.port());
    const HttpAnswer answer = client.post("/v1/rerank", R"({"query":"q","documents":["a"]})");
    EXPECT_EQ(answer.status, 400);
    EXPECT_EQ(error_param(answer), "model");
    EXPECT_NE(answer.body.find(engine.n_labels == 0 ? "no head" : "3 labels"), std::string::npos) << answer.body;
  }
}

TEST(ServerRank, ModelsListsAnEncodersCapabilities) {
  TestServer server({}, reranker());
  RawClient client(server.port());
  const HttpAnswer answer = client.get("/v1/models");
  EXPECT_NE(answer.body.find(R"("capabilities":["embedding","rerank"])"), std::string::npos) << answer.body;
}

}  // namespace
}  // namespace ibid
