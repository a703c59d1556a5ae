// Vectors of texts over the APIs that have them.
#include <openssl/evp.h>

#include <bit>
#include <cmath>

#include "conformance/server_fixture.h"
#include "kernels/math.h"
#include "server/dialects/dialects.h"
#include "tensor/half.h"

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

// The values in the text's bytes, each of so many, in their order.
std::vector<uint32_t> decoded(const std::string& text, int n_bytes, bool is_big_endian) {
  std::vector<unsigned char> bytes(text.size());
  const int n =
      EVP_DecodeBlock(bytes.data(), reinterpret_cast<const unsigned char*>(text.data()), static_cast<int>(text.size()));
  EXPECT_GT(n, 0) << text;
  bytes.resize(static_cast<size_t>(n) - (text.ends_with("==") ? 2 : text.ends_with("=") ? 1 : 0));
  std::vector<uint32_t> out;
  for (size_t i = 0; i < bytes.size(); ++i) {
    if (i % static_cast<size_t>(n_bytes) == 0) out.push_back(0);
    const auto at = static_cast<int>(i) % n_bytes;
    out.back() |= uint32_t{bytes[i]} << 8 * (is_big_endian ? n_bytes - 1 - at : at);
  }
  return out;
}

TEST(ServerEmbeddings, InBase64AreOfTheTypeAndOrderThatIsAsked) {
  TestServer server;
  RawClient client(server.port());
  for (const char* order : {"native", "little", "big"}) {
    const auto values = [&](const char* type, int n_bytes) {
      const Json answer = post_json(client, "/v1/embeddings",
                                    std::string(R"({"input":"hey","encoding_format":"base64","embed_dtype":")") + type +
                                        R"(","endianness":")" + order + "\"}");
      return decoded(*(*answer.find("data")->array())[0].find("embedding")->string(), n_bytes,
                     order == std::string_view("big"));
    };
    std::vector<uint32_t> singles, halves, brains;
    for (const float x : normed(kHey)) {
      singles.push_back(std::bit_cast<uint32_t>(x));
      halves.push_back(float_to_half(x));
      brains.push_back(float_to_bf16(x));
    }
    EXPECT_EQ(values("float32", 4), singles) << order;
    EXPECT_EQ(values("float16", 2), halves) << order;
    EXPECT_EQ(values("bfloat16", 2), brains) << order;
  }
  const auto refused = [&](const std::string& more) {
    const HttpAnswer wrong = client.post("/v1/embeddings", R"({"input":"a",)" + more + "}");
    EXPECT_EQ(wrong.status, 400) << wrong.body;
    return error_param(wrong);
  };
  // Numbers in JSON have neither, and nothing is passed over in silence.
  EXPECT_EQ(refused(R"("embed_dtype":"float16")"), "embed_dtype");
  EXPECT_EQ(refused(R"("endianness":"big")"), "endianness");
  EXPECT_EQ(refused(R"("encoding_format":"base64","embed_dtype":"fp8_e4m3")"), "embed_dtype");
  EXPECT_EQ(refused(R"("encoding_format":"base64","endianness":"middle")"), "endianness");
  EXPECT_EQ(refused(R"("encoding_format":"bytes")"), "encoding_format");
  EXPECT_EQ(refused(R"("padding":"max_length")"), "padding");
  EXPECT_EQ(refused(R"("late_chunking_params":{"chunk_size":5})"), "late_chunking_params");
  EXPECT_EQ(refused(R"("use_activation":1)"), "use_activation");
  const Json as_it_is =
      post_json(client, "/v1/embeddings", R"({"input":"hey","use_activation":false,"padding":"do_not_pad"})");
  EXPECT_EQ(floats(*(*as_it_is.find("data")->array())[0].find("embedding")), kHey);
}

TEST(ServerEmbeddings, OfEachTokenStandOneAfterTheOther) {
  TestServer server;
  RawClient client(server.port());
  const std::vector<std::vector<float>> rows = {{0, 'h', 0, 1}, {1, 'e', 0, 1}, {2, 'y', 0, 1}};
  const auto of = [](const Json& list) {
    std::vector<std::vector<float>> out;
    for (const Json& row : *list.array()) out.push_back(floats(row));
    return out;
  };
  const std::string each = R"("task":"token_embed")";
  const Json answer =
      post_json(client, "/pooling", R"({"model":"fake-1","input":["hey","a"],"use_activation":false,)" + each + "}");
  EXPECT_TRUE(answer.find("id")->string()->starts_with("pooling-"));
  EXPECT_EQ(*answer.find("object")->string(), "list");
  EXPECT_EQ(*answer.find("usage")->find("prompt_tokens")->integer(), 4);
  ASSERT_EQ(answer.find("data")->array()->size(), 2u);
  const Json& first = (*answer.find("data")->array())[0];
  EXPECT_EQ(*first.find("object")->string(), "pooling");
  EXPECT_EQ(of(*first.find("data")), rows);
  // Normalised by default, each by itself.
  const Json unit = post_json(client, "/pooling", R"({"input":"hey",)" + each + "}");
  EXPECT_EQ(of(*(*unit.find("data")->array())[0].find("data"))[2], normed(rows[2]));
  const Json bytes = post_json(client, "/pooling",
                               R"({"input":"hey","encoding_format":"base64","use_activation":false,)" + each + "}");
  EXPECT_EQ(decoded(*(*bytes.find("data")->array())[0].find("data")->string(), 4, false).size(), 12u);
  // llama.cpp's, as they are; OpenAI's form has none.
  for (const char* path : {"/embedding", "/embeddings"}) {
    const Json llama = post_json(client, path, R"({"input":"hey","pooling":"none"})");
    ASSERT_NE(llama.array(), nullptr) << path;
    EXPECT_EQ(of(*(*llama.array())[0].find("embedding")), rows) << path;
  }
  const HttpAnswer openai = client.post("/v1/embeddings", R"({"input":"hey","pooling":"none"})");
  EXPECT_EQ(openai.status, 400);
  EXPECT_EQ(error_param(openai), "pooling");
  EXPECT_EQ(client.post("/v2/embed", R"({"texts":["hey"],"pooling":"none"})").status, 400);
}

TEST(ServerEmbeddings, TasksAreThoseThatTheModelHas) {
  TestServer server;
  RawClient client(server.port());
  const Json whole = post_json(client, "/pooling", R"({"input":"hey","task":"embed"})");
  EXPECT_EQ(floats(*(*whole.find("data")->array())[0].find("data")), normed(kHey));
  EXPECT_EQ(floats(*(*post_json(client, "/pooling", R"({"input":"hey"})").find("data")->array())[0].find("data")),
            normed(kHey));
  const auto refused = [&](RawClient& of, const std::string& body) {
    const HttpAnswer wrong = of.post("/pooling", body);
    EXPECT_EQ(wrong.status, 400) << wrong.body;
    return error_param(wrong);
  };
  for (const char* task : {R"("classify")", R"("token_classify")", R"("plugin")", "7"})
    EXPECT_EQ(refused(client, std::string(R"({"input":"a","task":)") + task + "}"), "task");
  EXPECT_EQ(refused(client, R"({"task":"embed"})"), "input");

  FakeBackend::Options reranker;
  reranker.is_encoder = true;
  reranker.n_labels = 1;
  TestServer ranks({}, reranker);
  RawClient asks(ranks.port());
  const double x = ('z' - 'm') / 4.0;
  const float sure = static_cast<float>(1 / (1 + math::exp(-x)));
  for (const char* task : {"", R"(,"task":"classify")"}) {
    const Json score =
        post_json(asks, "/pooling", std::string(R"({"input":"zoo","add_special_tokens":false)") + task + "}");
    EXPECT_EQ(floats(*(*score.find("data")->array())[0].find("data")), std::vector<float>{sure});
    const Json raw =
        post_json(asks, "/pooling",
                  std::string(R"({"input":"zoo","add_special_tokens":false,"use_activation":false)") + task + "}");
    EXPECT_EQ(floats(*(*raw.find("data")->array())[0].find("data")), std::vector<float>{static_cast<float>(x)});
  }
  EXPECT_EQ(refused(asks, R"({"input":"a","task":"embed"})"), "pooling");
  EXPECT_EQ(post_json(asks, "/pooling", R"({"input":"ab","task":"token_embed"})").find("data")->array()->size(), 1u);
}

TEST(ServerEmbeddings, OfEachTokenAreRefusedWhereTheirAnswerWouldNotFit) {
  ServerOptions options;
  options.max_answers_bytes = 200'000;
  TestServer server(options);
  RawClient client(server.port());
  const auto body = [](size_t n, const char* task) {
    return R"({"input":")" + std::string(n, 'x') + R"(","task":")" + task + "\"}";
  };
  const HttpAnswer large = client.post("/pooling", body(2000, "token_embed"));
  EXPECT_EQ(large.status, 400) << large.body.substr(0, 200);
  EXPECT_EQ(error_param(large), "input");
  EXPECT_NE(large.body.find("--max-answers-bytes"), std::string::npos);
  EXPECT_EQ(client.post("/pooling", body(2000, "embed")).status, 200);
  EXPECT_EQ(client.post("/pooling", body(200, "token_embed")).status, 200);
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
    return values.at(1) / values.at(3);  // after the norm
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

TEST(ServerEmbeddings, OfConversationsAreThoseOfWhatTheTemplateMakesOfThem) {
  TestServer server;
  RawClient client(server.port());
  const auto vector_of = [&](const char* path, const std::string& body) {
    const Json answer = post_json(client, path, body);
    const Json& first = (*answer.find("data")->array())[0];
    return floats(*(first.find("embedding") != nullptr ? first.find("embedding") : first.find("data")));
  };
  const std::string messages = R"("messages":[{"role":"user","content":"hey"}])";
  const std::vector<float> wanted =
      vector_of("/v1/embeddings", R"({"input":[[60,117,115,101,114,62,104,101,121,256]]})");
  EXPECT_EQ(wanted, normed({10, '<', static_cast<float>(Pooling::kMean), 1}));
  EXPECT_EQ(vector_of("/v1/embeddings", "{" + messages + "}"), wanted);
  EXPECT_EQ(vector_of("/pooling", "{" + messages + "}"), wanted);
  EXPECT_EQ(vector_of("/v1/embeddings", "{" + messages + R"(,"add_generation_prompt":true})"),
            normed({10 + 11, '<', static_cast<float>(Pooling::kMean), 1}));
  EXPECT_EQ(vector_of("/v1/embeddings", "{" + messages + R"(,"truncate_prompt_tokens":4})"),
            vector_of("/v1/embeddings", R"({"input":"<use"})"));
  EXPECT_EQ(error_param(client.post("/v1/embeddings", "{" + messages + R"(,"input":"a"})")), "messages");
  EXPECT_EQ(error_param(client.post("/v1/embeddings", R"({"messages":[]})")), "messages");
  EXPECT_EQ(
      error_param(client.post("/v1/embeddings", R"({"messages":[{"role":"user","content":[{"type":"image_url"}]}]})")),
      "messages[0].content[0].image_url");
}

TEST(ServerEmbeddings, OfConversationsAreWhatAnEncoderIsInvokedFor) {
  FakeBackend::Options encoder;
  encoder.is_encoder = true;
  TestServer server({}, encoder);
  RawClient client(server.port());
  const std::string messages = R"({"messages":[{"role":"user","content":"hey"}]})";
  EXPECT_EQ(post_json(client, "/invocations", messages).find("data")->text(),
            post_json(client, "/v1/embeddings", messages).find("data")->text());
}

TEST(ServerEmbeddings, OfLongTextsKeepTheirBeginWhereTheyAreCut) {
  TestServer server;
  RawClient client(server.port());
  const auto values = [&](const std::string& more) {
    const Json answer =
        post_json(client, "/v1/embeddings", R"({"input":"abcdef","truncate_prompt_tokens":3)" + more + "}");
    return floats(*(*answer.find("data")->array())[0].find("embedding"));
  };
  EXPECT_EQ(values(""), normed({3, 'a', static_cast<float>(Pooling::kMean), 1}));
  EXPECT_EQ(values(R"(,"truncation_side":"left")"), normed({3, 'd', static_cast<float>(Pooling::kMean), 1}));
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
