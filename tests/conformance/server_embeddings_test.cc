// Vectors of texts over the APIs that have them.
#include <openssl/evp.h>

#include <cmath>

#include "conformance/server_fixture.h"
#include "server/dialects.h"

namespace ibid {
namespace {

std::vector<float> floats(const Json& list) {
  std::vector<float> out;
  if (list.array() == nullptr) return out;
  for (const Json& value : *list.array()) out.push_back(static_cast<float>(value.number()));
  return out;
}

std::vector<float> normed(std::vector<float> values) {
  double sum = 0;
  for (const float x : values) sum += static_cast<double>(x) * static_cast<double>(x);
  for (float& x : values) x = static_cast<float>(static_cast<double>(x) / std::sqrt(sum));
  return values;
}

// What the fake engine makes of "hey": its length, its first token, the mean, and 1.
const std::vector<float> kHey = {3, 'h', static_cast<float>(Pooling::kMean), 1};

TEST(ServerEmbeddings, OfOpenAiAreNormedAndCountTheirTokens) {
  TestServer server;
  RawClient client(server.port());
  const Json one = post_json(client, "/v1/embeddings", R"({"model":"fake-1","input":"hey"})");
  EXPECT_EQ(*one.find("object")->string(), "list");
  EXPECT_EQ(*one.find("model")->string(), "fake-1");
  EXPECT_EQ(*one.find("usage")->find("prompt_tokens")->integer(), 3);
  EXPECT_EQ(*one.find("usage")->find("total_tokens")->integer(), 3);
  const Json& first = (*one.find("data")->array())[0];
  EXPECT_EQ(floats(*first.find("embedding")), normed(kHey));

  // All forms of an input, in their order.
  const Json many = post_json(client, "/v1/embeddings", R"({"input":["hey","a"],"dimensions":4})");
  ASSERT_EQ(many.find("data")->array()->size(), 2u);
  EXPECT_EQ(*(*many.find("data")->array())[1].find("index")->integer(), 1);
  EXPECT_EQ(floats(*(*many.find("data")->array())[1].find("embedding")), normed({1, 'a', 1, 1}));
  const Json ids = post_json(client, "/v1/embeddings", R"({"input":[[104,101,121],[98]]})");
  EXPECT_EQ(floats(*(*ids.find("data")->array())[0].find("embedding")), normed(kHey));
  const Json row = post_json(client, "/embeddings", R"({"input":[104,101,121],"pooling":"last"})");
  EXPECT_EQ(floats(*(*row.find("data")->array())[0].find("embedding")), normed({3, 'h', 2, 1}));
}

TEST(ServerEmbeddings, InBase64AreTheSameBytes) {
  TestServer server;
  RawClient client(server.port());
  const Json answer = post_json(client, "/v1/embeddings", R"({"input":["hey"],"encoding_format":"base64"})");
  const std::string& text = *(*answer.find("data")->array())[0].find("embedding")->string();
  ASSERT_EQ(text.size(), 24u);
  std::vector<unsigned char> bytes(24);
  ASSERT_EQ(EVP_DecodeBlock(bytes.data(), reinterpret_cast<const unsigned char*>(text.data()), 24), 18);
  std::vector<float> values(4);
  std::memcpy(values.data(), bytes.data(), 16);
  EXPECT_EQ(values, normed(kHey));
}

TEST(ServerEmbeddings, OfCohereAreByTypeAndCutOnlyWhereItIsAsked) {
  TestServer server;
  RawClient client(server.port());
  const Json answer = post_json(client, "/v2/embed",
                                R"({"model":"fake-1","input_type":"search_query","texts":["hey","a"],)"
                                R"("embedding_types":["float","base64","binary","ubinary","float"]})");
  EXPECT_EQ(answer.find("texts")->text(), R"(["hey","a"])");
  EXPECT_EQ(*answer.find("response_type")->string(), "embeddings_by_type");
  EXPECT_EQ(*answer.find("meta")->find("billed_units")->find("input_tokens")->integer(), 4);
  const Json& types = *answer.find("embeddings");
  ASSERT_EQ(types.object()->size(), 4u);
  ASSERT_EQ(types.find("float")->array()->size(), 2u);
  EXPECT_EQ(floats((*types.find("float")->array())[0]), normed(kHey));
  EXPECT_EQ(floats((*types.find("float")->array())[1]), normed({1, 'a', 1, 1}));
  EXPECT_EQ((*types.find("base64")->array())[1].string()->size(), 24u);
  // All four values are above 0.
  EXPECT_EQ(types.find("ubinary")->text(), "[[240],[240]]");
  EXPECT_EQ(types.find("binary")->text(), "[[112],[112]]");
  EXPECT_EQ(post_json(client, "/v2/embed", R"({"texts":["hey"]})").find("embeddings")->object()->size(), 1u);

  const std::string text = R"({"texts":["a)" + std::string(5000, 'x') + "\"]";
  EXPECT_EQ(client.post("/v2/embed", text + "}").status, 400);
  EXPECT_EQ(client.post("/v2/embed", text + R"(,"truncate":"NONE"})").status, 400);
  const auto first_letter = [&](const char* side) {
    const Json cut = post_json(client, "/v2/embed", text + R"(,"truncate":")" + side + "\"}");
    const std::vector<float> values = floats((*cut.find("embeddings")->find("float")->array())[0]);
    return values.at(1) / values.at(3);  // behind the norm
  };
  EXPECT_NEAR(first_letter("START"), 'x', 0.1);
  EXPECT_NEAR(first_letter("END"), 'a', 0.1);

  const auto refused = [&](const std::string& body) {
    const HttpAnswer wrong = client.post("/v2/embed", body);
    EXPECT_EQ(wrong.status, 400) << wrong.body;
    return error_param(wrong);
  };
  EXPECT_EQ(refused("{}"), "texts");
  EXPECT_EQ(refused(R"({"texts":"a"})"), "texts");
  EXPECT_EQ(refused(R"({"texts":["a",7]})"), "texts");
  EXPECT_EQ(refused(R"({"texts":["a"],"images":["b"]})"), "images");
  EXPECT_EQ(refused(R"({"texts":["a"],"input_type":"image"})"), "input_type");
  EXPECT_EQ(refused(R"({"texts":["a"],"embedding_types":["int8"]})"), "embedding_types");
  EXPECT_EQ(refused(R"({"texts":["a"],"truncate":"end"})"), "truncate");
  EXPECT_EQ(refused(R"({"texts":["a"],"output_dimension":2})"), "output_dimension");
}

TEST(ServerEmbeddings, OfOllamaAndLlamaHaveTheirForms) {
  TestServer server;
  RawClient client(server.port());
  const Json embed =
      post_json(client, "/api/embed", R"({"model":"fake-1:latest","input":["hey","hey"],"truncate":true})");
  ASSERT_EQ(embed.find("embeddings")->array()->size(), 2u);
  EXPECT_EQ(floats((*embed.find("embeddings")->array())[1]), normed(kHey));
  EXPECT_EQ(*embed.find("prompt_eval_count")->integer(), 6);
  const Json cut = post_json(client, "/api/embed", R"({"input":"hey","dimensions":2})");
  EXPECT_EQ(floats((*cut.find("embeddings")->array())[0]), normed({3, 'h'})) << "cut, and normed again";
  const Json old = post_json(client, "/api/embeddings", R"({"model":"fake-1","prompt":"hey"})");
  EXPECT_EQ(floats(*old.find("embedding")), normed(kHey));
  EXPECT_TRUE(post_json(client, "/api/embed", R"({"model":"fake-1"})").find("embeddings")->array()->empty());
  const Json llama = post_json(client, "/embedding", R"({"content":"hey","embd_normalize":-1})");
  const Json& values = *(*llama.array())[0].find("embedding");
  EXPECT_EQ(floats((*values.array())[0]), kHey);
}

TEST(ServerEmbeddings, RefusalsNameTheFieldInTheApisWords) {
  TestServer server;
  RawClient client(server.port());
  const auto refusal = [&](const char* path, const std::string& body) {
    const Json json = post_json(client, path, body, 400);
    const Json* error = json.find("error");
    if (error == nullptr) return std::string("no error");
    if (error->string() != nullptr) return *error->string();
    const std::string* param = error->find("param")->string();
    return param != nullptr ? *param : std::string("null");
  };
  const char* path = "/v1/embeddings";
  EXPECT_EQ(refusal(path, "{}"), "input");
  EXPECT_EQ(refusal(path, R"({"input":""})"), "input");
  EXPECT_EQ(refusal(path, R"({"input":[]})"), "input");
  EXPECT_EQ(refusal(path, R"({"input":["a",""]})"), "input[1]");
  EXPECT_EQ(refusal(path, R"({"input":["a",true]})"), "input[1]");
  EXPECT_EQ(refusal(path, R"({"input":[[1],[999]]})"), "input[1]");
  EXPECT_EQ(refusal(path, R"({"input":{"a":1}})"), "input");
  EXPECT_EQ(refusal(path, R"({"input":")" + std::string(3000, 'a') + "\"}"), "input");
  EXPECT_EQ(refusal(path, R"({"input":"a","dimensions":2})"), "dimensions");
  EXPECT_EQ(refusal(path, R"({"input":"a","dimensions":0})"), "dimensions");
  EXPECT_EQ(refusal(path, R"({"input":"a","encoding_format":"int8"})"), "encoding_format");
  EXPECT_EQ(refusal(path, R"({"input":"a","pooling":"max"})"), "pooling");
  EXPECT_EQ(refusal(path, "[]"), "null");
  EXPECT_NE(refusal("/api/embed", R"({"input":"a","dimensions":9})").find("dimensions is 9"), std::string::npos);
  std::string many = R"({"input":["a")";
  for (int i = 0; i < 2048; ++i) many += ",\"a\"";
  EXPECT_EQ(refusal(path, many + "]}"), "input");
}

TEST(ServerEmbeddings, MoreThanAnOrdinaryRequestMayHavePromptsFitIntoOne) {
  FakeBackend::Options engine;
  engine.max_waiting = 4096;
  TestServer server({}, engine);
  RawClient client(server.port());
  std::string many = R"({"input":["a")";
  for (int i = 1; i < 2000; ++i) many += ",\"b" + std::string(static_cast<size_t>(i % 7), 'b') + "\"";
  const Json answer = post_json(client, "/v1/embeddings", many + "]}");
  const Json::Array& data = *answer.find("data")->array();
  ASSERT_EQ(data.size(), 2000u);
  for (size_t i = 1; i < data.size(); ++i) {
    EXPECT_EQ(*data[i].find("index")->integer(), static_cast<int64_t>(i));
    EXPECT_EQ(floats(*data[i].find("embedding")), normed({static_cast<float>(1 + i % 7), 'b', 1, 1})) << i;
  }
}

}  // namespace
}  // namespace ibid
