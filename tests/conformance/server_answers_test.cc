// What an answer reports about itself, over the real engine: why it ended, what it cost, the log-probabilities of its
// tokens and its prompt, whatever else is in the batch.
#include <algorithm>
#include <functional>
#include <set>

#include "conformance/engine_server.h"

namespace ibid {
namespace {

Json ask(RawClient& client, const std::string& fields) {
  const HttpAnswer a = client.post("/v1/completions", "{" + fields + "}", "", 20);
  Result<Json> json = parse_json(a.body);
  EXPECT_TRUE(json.ok()) << a.body;
  return json.ok() ? *json : Json();
}
const Json& first_choice(const Json& answer) { return (*answer.find("choices")->array())[0]; }
std::string text_of(const Json& answer) { return *first_choice(answer).find("text")->string(); }
// finish_reason and stop_reason, as JSON.
std::string ends_by(const Json& answer) {
  const Json& choice = first_choice(answer);
  return choice.find("finish_reason")->text() + " " + choice.find("stop_reason")->text();
}

TEST(ServerAnswers, OfSearchesComeBestFirstWithTheirScores) {
  EngineServer server({}, 0);
  RawClient client(server.port());
  const Json beams = ask(client, R"("prompt":"ABC","num_beams":4,"n":3,"max_tokens":6,"logprobs":0)");
  const Json::Array& choices = *beams.find("choices")->array();
  ASSERT_EQ(choices.size(), 3u);
  double last = 0;
  std::set<std::string> texts;
  for (const Json& choice : choices) {
    EXPECT_LE(choice.find("score")->number(), last);
    last = choice.find("score")->number();
    texts.insert(*choice.find("text")->string());
    double sum = 0;
    const Json::Array& logprobs = *choice.find("logprobs")->find("token_logprobs")->array();
    for (const Json& logprob : logprobs) sum += logprob.number();
    EXPECT_NEAR(last, sum / static_cast<double>(logprobs.size()), 1e-4);
  }
  EXPECT_EQ(texts.size(), 3u);
  // One beam is the likeliest token each time, and vLLM's spelling has its width in n.
  const Json greedy = ask(client, R"("prompt":"ABC","temperature":0,"max_tokens":6)");
  EXPECT_EQ(text_of(ask(client, R"("prompt":"ABC","use_beam_search":true,"max_tokens":6)")), text_of(greedy));
  EXPECT_EQ(
      ask(client, R"("prompt":"ABC","use_beam_search":true,"n":2,"max_tokens":6)").find("choices")->array()->size(),
      2u);
  EXPECT_EQ(first_choice(greedy).find("score"), nullptr);
}

TEST(ServerAnswers, BestOfAreTheLikeliestOfThoseThatAreDrawn) {
  EngineServer server({}, 0);
  RawClient client(server.port());
  const std::string fields = R"("prompt":"ABC","seed":5,"max_tokens":7,"logprobs":0,"temperature":2,)";
  const Json all = ask(client, fields + R"("n":6)");
  std::vector<std::pair<double, std::string>> ranked;
  for (const Json& choice : *all.find("choices")->array()) {
    const Json::Array& logprobs = *choice.find("logprobs")->find("token_logprobs")->array();
    double sum = 0;
    for (const Json& logprob : logprobs) sum += logprob.number();
    ranked.emplace_back(sum / static_cast<double>(logprobs.size()), *choice.find("text")->string());
  }
  std::ranges::sort(ranked, std::greater<>());
  const Json best = ask(client, fields + R"("n":2,"best_of":6)");
  ASSERT_EQ(best.find("choices")->array()->size(), 2u);
  for (size_t i = 0; i < 2; ++i)
    EXPECT_EQ(*(*best.find("choices")->array())[i].find("text")->string(), ranked[i].second);
  EXPECT_EQ(*best.find("usage")->find("completion_tokens")->integer(),
            *all.find("usage")->find("completion_tokens")->integer())
      << "all that was drawn is paid for";
}

TEST(ServerAnswers, SearchesRefuseByNameWhatCannotBe) {
  EngineServer server({}, 0);
  RawClient client(server.port());
  for (const auto& [fields, param] : std::initializer_list<std::pair<const char*, const char*>>{
           {R"("num_beams":4,"stream":true)", "stream"},
           {R"("best_of":3,"stream":true)", "stream"},
           {R"("num_beams":4,"top_p":0.5)", "temperature"},
           {R"("num_beams":4,"stop":["x"])", "stop"},
           {R"("num_beams":4,"logprobs":2)", "top_logprobs"},
           {R"("num_beams":4,"num_beam_groups":3)", "num_beam_groups"},
           {R"("num_beams":4,"n":5)", "n"},
           {R"("num_beams":65)", "num_beams"},
           {R"("penalty_alpha":0.5)", "penalty_alpha"},
           {R"("length_penalty":2)", "length_penalty"},
           {R"("n":3,"best_of":2)", "best_of"}}) {
    const HttpAnswer a =
        client.post("/v1/completions", std::string(R"({"prompt":"ABC","max_tokens":4,)") + fields + "}");
    EXPECT_EQ(a.status, 400) << fields << a.body;
    const Result<Json> json = parse_json(a.body);
    ASSERT_TRUE(json.ok());
    EXPECT_EQ(json->find("error")->find("param")->text(), std::string("\"") + param + "\"") << a.body;
  }
}

TEST(ServerAnswers, ListUnenforcedKeywordsOfASchema) {
  TestServer server;
  RawClient client(server.port());
  const auto told = [&](const std::string& schema) {
    const HttpAnswer a =
        client.post("/v1/completions", R"({"prompt":"A","max_tokens":3,"json_schema":)" + schema + "}");
    const Result<Json> json = parse_json(a.body);
    EXPECT_EQ(a.status, 200) << a.body;
    const Json* sentences = (*json->find("choices")->array())[0].find("not_held");
    return sentences == nullptr ? "" : sentences->text();
  };
  EXPECT_EQ(told(R"({"type":"array","items":{"type":"integer"}})"), "");
  const std::string said = told(R"({"type":"array","items":{"type":"integer"},"uniqueItems":true})");
  EXPECT_NE(said.find("uniqueItems"), std::string::npos) << said;
}

TEST(ServerAnswers, HaveTheirFinishReason) {
  EngineServer server({}, 0);
  RawClient client(server.port());
  const std::string free = text_of(ask(client, R"("prompt":"ABC","seed":1,"ignore_eos":true,"max_tokens":30)"));
  ASSERT_EQ(free.size(), 30u);
  const std::string fields = R"("prompt":"ABC","seed":1,"ignore_eos":true,)";
  EXPECT_EQ(ends_by(ask(client, fields + R"("max_tokens":30)")), R"("length" null)");
  const std::string stop = free.substr(10, 2);
  const Json stopped = ask(client, fields + "\"stop\":[\"zz\",\"" + stop + "\"]");
  EXPECT_EQ(ends_by(stopped), "\"stop\" \"" + stop + "\"");
  EXPECT_EQ(text_of(stopped), free.substr(0, free.find(stop)));
  const Json kept = ask(client, fields + "\"include_stop_str_in_output\":true,\"stop\":\"" + stop + "\"");
  EXPECT_EQ(text_of(kept), free.substr(0, free.find(stop) + 2));
  const int id = free[5] - '@' + 1;
  const Json by_id = ask(client, fields + "\"stop_token_ids\":[" + std::to_string(id) + "]");
  EXPECT_EQ(ends_by(by_id), "\"stop\" " + std::to_string(id));
  EXPECT_EQ(text_of(by_id), free.substr(0, free.find(free[5])));
  // The whole context.
  const Json full = ask(client, R"("prompt":"ABC","seed":1,"ignore_eos":true)");
  EXPECT_EQ(ends_by(full), R"("length" null)");
  EXPECT_EQ(text_of(full).size(), static_cast<size_t>(EngineServer::kContext - 3));
}

TEST(ServerAnswers, EndAtTheModelsOwnEndUnlessTokensAreOwed) {
  EngineServer server({}, 0);
  RawClient client(server.port());
  Request request;
  for (const char c : {'A', 'B', 'C'}) request.prompt.push_back(TokenId{c - '@' + 1});
  request.max_tokens = 400;
  testing::ExpectedAnswer expected;
  do {
    expected = testing::expected_answer(request, 0, EngineServer::kContext);
  } while ((expected.reason != FinishReason::kEos || expected.tokens.size() < 4) && ++request.sampling.seed < 1000);
  const size_t len = expected.tokens.size();  // with the end, which has no text
  const std::string fields = "\"prompt\":\"ABC\",\"max_tokens\":400,\"temperature\":1,\"top_p\":1,\"seed\":" +
                             std::to_string(request.sampling.seed);
  const Json answer = ask(client, fields);
  EXPECT_EQ(ends_by(answer), R"("stop" null)");
  EXPECT_EQ(text_of(answer).size(), len - 1);
  EXPECT_EQ(*answer.find("usage")->find("completion_tokens")->integer(), static_cast<int64_t>(len));
  const std::string owed = text_of(ask(client, fields + ",\"min_tokens\":" + std::to_string(len + 5)));
  EXPECT_GE(owed.size(), len + 4);
  EXPECT_EQ(owed.substr(0, len - 1), text_of(answer));
  EXPECT_EQ(text_of(ask(client, fields + ",\"ignore_eos\":true")).size(), 400u);
}

TEST(ServerAnswers, HaveNoBannedWordAndOnlyAllowedTokens) {
  EngineServer server({}, 0);
  RawClient client(server.port());
  const std::string fields = R"("prompt":"ABC","seed":3,"ignore_eos":true,"max_tokens":60)";
  const std::string free = text_of(ask(client, fields)), word = free.substr(7, 2);
  const std::string without = text_of(ask(client, fields + ",\"bad_words\":[\"" + word + "\"]"));
  EXPECT_EQ(without.find(word), std::string::npos);
  EXPECT_EQ(without.substr(0, free.find(word) + 1), free.substr(0, free.find(word) + 1));  // as before, up to it
  const std::string few = text_of(ask(client, fields + R"(,"allowed_token_ids":[2,3,4])"));
  EXPECT_EQ(few.find_first_not_of("ABC"), std::string::npos) << few;
  EXPECT_EQ(few.size(), 60u);
}

TEST(ServerAnswers, EveryRowOfABatchKeepsItsOwnSampler) {
  const std::vector<std::string> samplers = {
      R"("temperature":0)",
      R"("temperature":0.5)",
      R"("top_k":5)",
      R"("top_p":0.5,"min_p":0.05)",
      R"("repetition_penalty":1.5,"presence_penalty":1)",
      R"("mirostat":1,"mirostat_tau":3)",
      R"("mirostat":2,"mirostat_tau":3)",
      R"("dry_multiplier":2,"no_repeat_ngram_size":2)",
      R"("logit_bias":{"7":5,"B":-5},"typical_p":0.8)",
      R"("xtc_probability":0.7,"xtc_threshold":0.05)",
      R"("allowed_token_ids":[9,10,11,12],"n":3)",
      R"("dynatemp_range":0.6,"top_n_sigma":2)",
  };
  EngineServer server({}, 0.0005);
  const auto choices = [&](const std::string& sampler) {
    RawClient client(server.port());
    // Parameters that a sampler does not set are off, so that each acts on the model's own distribution.
    std::string whole;
    for (const char* field : {"\"temperature\":", "\"top_p\":"})
      if (sampler.find(field) == std::string::npos) whole += std::string(field) + "1,";
    return ask(client, R"("prompt":"HELLO","seed":11,"max_tokens":40,"logprobs":2,"processed_logprobs":true,)" + whole +
                           sampler)
        .find("choices")
        ->text();
  };
  std::vector<std::string> alone, together(samplers.size());
  for (const std::string& sampler : samplers) alone.push_back(choices(sampler));
  std::vector<std::thread> clients;
  for (size_t i = 0; i < samplers.size(); ++i) clients.emplace_back([&, i] { together[i] = choices(samplers[i]); });
  for (std::thread& client : clients) client.join();
  std::set<std::string> different;
  for (size_t i = 0; i < samplers.size(); ++i) {
    EXPECT_EQ(together[i], alone[i]) << samplers[i];
    different.insert(alone[i]);
  }
  EXPECT_EQ(different.size(), samplers.size());  // each sampler gives a different answer
}

TEST(ServerAnswers, PromptsAreWorthTheSameInPiecesOfAnySize) {
  std::string prompt;
  for (int i = 0; i < 150; ++i) prompt += static_cast<char>('@' + i * i % 63);
  const std::string fields = "\"prompt\":\"" + Json(prompt).text().substr(1, Json(prompt).text().size() - 2) +
                             R"(","seed":1,"echo":true,"logprobs":3,"prompt_logprobs":2,"max_tokens":)";
  std::set<std::string> choices;
  for (const auto& [max_tokens, max_rows] :
       {std::pair{512, 64}, std::pair{512, 1}, std::pair{7, 3}, std::pair{64, 64}}) {
    EngineOptions options;
    options.step_tokens = max_tokens;
    options.max_rows = max_rows;
    options.max_sequences = std::min({4, max_tokens, max_rows});
    EngineServer server(options, 0);
    RawClient client(server.port());
    for (const char* n : {"0", "5"}) {
      const Json answer = ask(client, fields + n);
      choices.insert(n + answer.find("choices")->text());
      const Json& logprobs = *first_choice(answer).find("logprobs");
      EXPECT_EQ(logprobs.find("tokens")->array()->size(), 150u + static_cast<size_t>(n[0] - '0'));
      EXPECT_EQ(first_choice(answer).find("prompt_logprobs")->array()->size(), 150u);
      EXPECT_EQ(text_of(answer).substr(0, 150), prompt);
    }
  }
  EXPECT_EQ(choices.size(), 2u);  // one for each number of tokens
}

TEST(ServerAnswers, UsageAddsUpWithWhatTheCacheSpared) {
  EngineServer server({}, 0);
  RawClient client(server.port());
  const std::string fields = "\"prompt\":[\"" + std::string(100, 'A') + "\",\"" + std::string(40, 'B') +
                             R"("],"n":2,"seed":1,"ignore_eos":true,"max_tokens":5)";
  for (const int64_t cached : {int64_t{0}, int64_t{99 + 39}}) {  // all but the last token of each
    const Json answer = ask(client, fields);
    const Json& usage = *answer.find("usage");
    EXPECT_EQ(*usage.find("prompt_tokens")->integer(), 140);
    EXPECT_EQ(*usage.find("completion_tokens")->integer(), 20);
    EXPECT_EQ(*usage.find("total_tokens")->integer(), 160);
    EXPECT_EQ(*usage.find("prompt_tokens_details")->find("cached_tokens")->integer(), cached);
    EXPECT_EQ(answer.find("choices")->array()->size(), 4u);
  }
  // A stream that requests it gets it in every event, and the last one has the sums.
  const HttpAnswer stream = client.post(
      "/v1/completions",
      R"({"prompt":"ABC","seed":1,"ignore_eos":true,"max_tokens":4,"stream":true,"stream_options":{"include_usage":true,"continuous_usage_stats":true}})");
  EXPECT_EQ(stream.body.find("\"usage\":null"), std::string::npos);
  EXPECT_NE(stream.body.find("\"completion_tokens\":4,\"total_tokens\":7"), std::string::npos) << stream.body;
}

TEST(ServerAnswers, ChatEchoesTheLastAssistantMessage) {
  TestServer server;
  RawClient client(server.port());
  const auto body = [](std::string_view messages, std::string_view more) {
    return R"({"seed":4,"max_tokens":6,"messages":[)" + std::string(messages) + "]" + std::string(more) + "}";
  };
  const std::string said = R"({"role":"user","content":"go"},{"role":"assistant","content":"Once upon"})";
  const std::string own = content_of(client.post("/v1/chat/completions", body(said, "")));
  EXPECT_EQ(content_of(client.post("/v1/chat/completions", body(said, R"(,"echo":true)"))), "Once upon" + own);
  const HttpAnswer both = client.post("/v1/chat/completions", body(said, R"(,"echo":true,"n":2,"stream":true)"));
  for (const int choice : {0, 1}) {
    const SseText text = read_events(both.body, choice);
    EXPECT_TRUE(text.text.starts_with("Once upon")) << text.text;
    EXPECT_EQ(text.text.size(), 9u + 6u);
  }
  const std::string asked = R"({"role":"user","content":"go"})";
  EXPECT_EQ(content_of(client.post("/v1/chat/completions", body(asked, R"(,"echo":true)"))),
            content_of(client.post("/v1/chat/completions", body(asked, ""))))
      << "a user's words are no part of an answer";
  const std::string none = R"({"max_tokens":0,"echo":true,"messages":[)" + said + "]}";
  EXPECT_EQ(error_param(client.post("/v1/chat/completions", none)), "max_tokens");
}

TEST(ServerAnswers, StreamReportsPromptProgress) {
  TestServer server;
  RawClient client(server.port());
  const auto told = [&](const char* path, const std::string& body) {
    std::vector<int64_t> processed;
    const std::string events = client.post(path, body).body;
    for (size_t at = 0, end; (end = events.find("\n\n", at)) != std::string::npos; at = end + 2) {
      const Result<Json> json = parse_json(events.substr(at + 6, end - at - 6));
      const Json* progress = json ? json->find("prompt_progress") : nullptr;
      if (progress == nullptr) continue;
      EXPECT_EQ(*progress->find("total")->integer(), 9);
      EXPECT_EQ(*progress->find("cache")->integer(), 0);
      EXPECT_GE(*progress->find("time_ms")->integer(), 0);
      processed.push_back(*progress->find("processed")->integer());
    }
    return processed;
  };
  const std::string body = R"({"prompt":"nine long","max_tokens":3,"stream":true)";
  // On a busy machine two steps may come together: then only the later one is reported.
  const std::vector<int64_t> halves = {0, 5, 9};  // what the cache had comes first
  for (const char* path : {"/v1/completions", "/completion"})
    EXPECT_TRUE(eventually([&] { return told(path, body + R"(,"return_progress":true})") == halves; })) << path;
  EXPECT_TRUE(told("/v1/completions", body + "}").empty());
  // With the same answer; without a stream, nothing is reported.
  const auto text = [&](const char* more) {
    return read_events(client.post("/v1/completions", body + R"(,"seed":1)" + more + "}").body).text;
  };
  EXPECT_EQ(text(R"(,"return_progress":true)"), text(""));
  const HttpAnswer whole = client.post("/v1/completions", R"({"prompt":"nine long","return_progress":true})");
  EXPECT_EQ(whole.status, 200);
  EXPECT_EQ(whole.body.find("prompt_progress"), std::string::npos);
}

TEST(ServerAnswers, ResponsesStreamReportsProgressAndTimingsOnRequest) {
  TestServer server;
  RawClient client(server.port());
  const std::string body = R"({"input":"nine long","max_output_tokens":3,"seed":1,"stream":true)";
  const std::string plain = client.post("/v1/responses", body + "}").body;
  const std::string events =
      client.post("/responses", body + R"(,"return_progress":true,"timings_per_token":true})").body;
  int n_progress = 0, n_deltas = 0;
  std::string text, last;
  for (size_t at = 0, end; (end = events.find("\n\n", at)) != std::string::npos; at = end + 2) {
    const size_t data = events.find("data: ", at) + 6;
    const Result<Json> json = parse_json(events.substr(data, end - data));
    if (!json || json->find("type") == nullptr) continue;  // [DONE]
    const std::string& type = last = *json->find("type")->string();
    const Json* timings = json->find("timings");
    if (const Json* progress = json->find("prompt_progress")) {
      EXPECT_EQ(type, "response.in_progress");
      EXPECT_NE(json->find("response"), nullptr);
      EXPECT_GE(*progress->find("total")->integer(), *progress->find("processed")->integer());
      ++n_progress;
    }
    if (type == "response.output_text.delta") {
      text += *json->find("delta")->string();
      ASSERT_NE(timings, nullptr);
      EXPECT_NE(timings->find("predicted_per_second"), nullptr);
      ++n_deltas;
    }
    if (type == "response.incomplete") {
      EXPECT_NE(timings, nullptr);
    }
  }
  EXPECT_EQ(last, "response.incomplete");
  EXPECT_GE(n_progress, 1);
  EXPECT_GE(n_deltas, 1);
  EXPECT_EQ(text.size(), 3u);
  EXPECT_NE(plain.find("\"delta\":"), std::string::npos);
  EXPECT_EQ(plain.find("timings"), std::string::npos);
  EXPECT_EQ(plain.find("prompt_progress"), std::string::npos);
}

TEST(ByHandServerReaders, SlowReaderIsDropped) {
  ServerOptions options;
  options.write_timeout = 8;
  options.send_buffer_bytes = 16 << 10;
  TestServer server(options);
  RawClient client(server.port(), 4096);
  const std::string body = "{\"content\":\"" + std::string(300'000, 'x') + "\",\"with_pieces\":true}";
  client.send("POST /tokenize HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: " +
              std::to_string(body.size()) + "\r\n\r\n" + body);
  ASSERT_TRUE(client.receive_until("200 OK"));
  // 10 KiB a second, so that each slice is taken within its deadline, where megabytes wait.
  const auto begin = std::chrono::steady_clock::now();
  const auto seconds = [&] { return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(); };
  while (server.http->n_connections() > 0 && seconds() < 60) {
    if (static_cast<double>(client.buffer.size()) < 10240 * seconds()) client.receive(1);
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_EQ(server.http->n_connections(), 0);
  EXPECT_GT(seconds(), 10) << "it was let go for a slice, and not for the whole";
}

}  // namespace
}  // namespace ibid
