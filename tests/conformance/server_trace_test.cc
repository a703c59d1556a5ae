// A trace is enough to make each draw again (row T4): its parameters, seed and counter and the model's row of logits
// give the token; another counter does not.
#include "conformance/engine_server.h"
#include "sample/stages.h"

namespace ibid {
namespace {

// One traced answer, and the model's rows before each of its tokens.
struct TracedAnswer {
  Json header;
  Json::Array records;
  std::vector<TokenId> prompt, answer;
  std::vector<std::vector<float>> rows;

  SampleHistory before(size_t i) const { return {prompt, std::span(answer).first(i)}; }
};

TracedAnswer ask(RawClient& client, const std::string& fields) {
  TracedAnswer out;
  for (int32_t i = 0; i < 9; ++i) out.prompt.push_back(TokenId{1 + i * 7 % 60});
  const HttpAnswer a =
      client.post("/v1/completions", "{\"prompt\":" + prompt_json(out.prompt) +
                                         ",\"max_tokens\":60,\"ignore_eos\":true,\"trace\":true," + fields + "}");
  Result<Json> json = parse_json(a.body);
  EXPECT_TRUE(json.ok() && json->find("choices") != nullptr) << a.body;
  out.header = *json->find("trace_header");
  out.records = *(*json->find("choices")->array())[0].find("trace")->array();
  uint64_t hash = testing::mix(77, 0);
  for (const TokenId t : out.prompt) hash = testing::mix(hash, static_cast<uint64_t>(raw(t)));
  for (const Json& record : out.records) {
    out.rows.emplace_back(testing::kFakeVocabSize);
    testing::fake_logits(hash, out.rows.back());
    const TokenId token{static_cast<int32_t>(*record.find("token")->integer())};
    out.answer.push_back(token);
    hash = testing::mix(hash, static_cast<uint64_t>(raw(token)));
  }
  return out;
}

// The header's parameters are what a request could contain.
SamplingParams parameters_of(const Json& header) {
  Json::Object body = *header.find("parameters")->object();
  body.emplace_back("prompt", Json(std::string("x")));
  Result<ApiRequest> api = parse_api_request(Endpoint::kCompletions, Json(std::move(body)), {});
  EXPECT_TRUE(api.ok()) << (api.ok() ? "" : api.error().message);
  SamplingParams params = api->sampling;
  params.logprobs = 0;
  params.processed_logprobs = true;
  return params;
}

TEST(ServerTrace, ReplaysEveryDrawFromItsParametersSeedAndPosition) {
  EngineServer server({}, 0);
  RawClient client(server.port());
  const TokenId ends[] = {testing::kFakeEnd};
  for (
      const char* fields : {
          R"("seed":1,"temperature":1,"top_p":1)",
          R"("seed":1)",
          R"("seed":2,"temperature":0)",
          R"("seed":3,"temperature":0.7,"top_p":0.8,"top_k":20,"min_p":0.01)",
          R"("seed":4,"temperature":1,"top_p":1,"repetition_penalty":1.3,"presence_penalty":0.5,"frequency_penalty":0.2,"no_repeat_ngram_size":3)",
          R"("seed":5,"temperature":1,"mirostat":1,"mirostat_tau":3,"mirostat_eta":0.3)",
          R"("seed":6,"temperature":1,"mirostat":2,"mirostat_tau":3,"mirostat_eta":0.3)",
          R"("seed":7,"temperature":1,"top_p":1,"xtc_probability":0.5,"xtc_threshold":0.05,"typical_p":0.9,"dynatemp_range":0.5)",
          R"("seed":8,"temperature":1,"top_p":1,"logit_bias":{"5":4,"A":-3},"allowed_token_ids":[2,5,9,11,12,40,41],"top_n_sigma":2)",
      }) {
    SCOPED_TRACE(fields);
    const TracedAnswer answer = ask(client, fields);
    ASSERT_EQ(answer.records.size(), 60u);
    const SamplingParams params = parameters_of(answer.header);
    SamplerState state;
    SamplerScratch scratch;
    for (size_t i = 0; i < answer.records.size(); ++i) {
      const Json& record = answer.records[i];
      EXPECT_EQ(*record.find("position")->integer(), static_cast<int64_t>(answer.prompt.size() + i));
      const auto seed = static_cast<uint64_t>(*record.find("seed")->integer());
      const auto sampler = Sampler::compile(params, testing::kFakeVocabSize, ends, seed).value();
      if (i == 0) state = sampler->initial_state();
      const TokenRecord again = sampler->sample(answer.rows[i], answer.before(i), state, scratch).value();
      ASSERT_EQ(raw(again.chosen.token), *record.find("token")->integer()) << i;
      EXPECT_EQ(again.chosen.raw, static_cast<float>(record.find("logprob")->number()));
      EXPECT_EQ(again.chosen.processed, static_cast<float>(record.find("processed_logprob")->number()));
      EXPECT_EQ(again.support, *record.find("support")->integer());
    }
  }
}

TEST(ServerTrace, AWrongCounterOrSeedDiverges) {
  EngineServer server({}, 0);
  RawClient client(server.port());
  const TracedAnswer answer = ask(client, R"("seed":1,"temperature":0.8,"top_k":30,"top_p":1)");
  SamplerScratch scratch;
  // How many tokens come out again when the counter is off by so much.
  const auto n_same = [&](int32_t positions, uint64_t seeds) {
    int n = 0;
    for (size_t i = 0; i < answer.records.size(); ++i) {
      std::vector<float> row = answer.rows[i];
      row[0] = -std::numeric_limits<float>::infinity();  // ignore_eos
      for (float& z : row) z /= 0.8f;
      stages::Support support;
      support.collect(row, scratch);
      stages::top_k(support, 30);
      const auto seed = static_cast<uint64_t>(*answer.records[i].find("seed")->integer()) + seeds;
      const auto position = static_cast<int32_t>(*answer.records[i].find("position")->integer()) + positions;
      n += stages::draw(support, seed, position, scratch) == answer.answer[i];
    }
    return n;
  };
  EXPECT_EQ(n_same(0, 0), 60);
  EXPECT_LT(n_same(1, 0), 20);
  EXPECT_LT(n_same(-1, 0), 20);
  EXPECT_LT(n_same(0, 1), 20);
}

}  // namespace
}  // namespace ibid
