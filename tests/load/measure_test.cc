// The load client's own arithmetic, and that it sees what a server sends.
#include "bench/load/measure.h"

#include <gtest/gtest.h>

#include "bench/load/event_reader.h"
#include "bench/load/prompts.h"
#include "conformance/server_fixture.h"

namespace ibid::load {
namespace {

TEST(LoadEvents, AreTheSameHoweverTheStreamIsCut) {
  const std::string stream =
      ": hello\n\ndata: {\"a\":1}\n\nevent: x\r\ndata:two\r\ndata: lines\r\n\r\n\ndata: [DONE]\n\ndata: cut";
  const std::vector<std::string> wanted = {"{\"a\":1}", "two\nlines", "[DONE]"};
  for (size_t step = 1; step <= stream.size(); ++step) {
    EventReader reader;
    std::vector<std::string> got;
    for (size_t at = 0; at < stream.size(); at += step)
      reader.push(std::string_view(stream).substr(at, step), [&](std::string data) { got.push_back(std::move(data)); });
    EXPECT_EQ(got, wanted) << "in pieces of " << step;
  }
}

TEST(LoadFigures, PercentilesAreTheNearestRank) {
  std::vector<double> values;
  for (int i = 1000; i >= 1; --i) values.push_back(i);
  const Percentiles p = percentiles_of(values);
  EXPECT_EQ(p.p50, 500);
  EXPECT_EQ(p.p95, 950);
  EXPECT_EQ(p.p99, 990);
  EXPECT_EQ(p.p999, 999);
  EXPECT_EQ(p.max, 1000);
  EXPECT_EQ(percentiles_of({7}).p999, 7);
  EXPECT_EQ(percentiles_of({}).n, 0u);
}

LoadAnswer answer_of(const std::vector<std::string>& events) {
  LoadAnswer a;
  a.status = 200;
  a.due = 1;
  a.end = 9;
  double at = 2;
  for (const std::string& data : events) a.events.push_back({at, data}), at += 0.5;
  return a;
}

TEST(LoadFigures, ContentIsTheSameHoweverEventsWereMerged) {
  const std::string usage = R"({"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":3}})";
  const LoadAnswer one_by_one = answer_of(
      {R"({"choices":[{"index":0,"delta":{"role":"assistant","content":""}}]})",
       R"({"choices":[{"index":0,"delta":{"content":"a"},"logprobs":{"content":[{"logprob":-0.5}]},"token_ids":[1]}]})",
       R"({"choices":[{"index":0,"delta":{"content":"b"},"logprobs":{"content":[{"logprob":-1.5}]},"token_ids":[2,3]}]})",
       R"({"choices":[{"index":0,"delta":{},"finish_reason":"length"}]})", usage, "[DONE]"});
  const LoadAnswer merged = answer_of(
      {R"({"choices":[{"index":0,"delta":{"content":"ab"},"logprobs":{"content":[{"logprob":-0.5},{"logprob":-1.5}]},"token_ids":[1,2,3],"finish_reason":"length"}]})",
       usage, "[DONE]"});
  const StreamContent a = read_stream(one_by_one), b = read_stream(merged);
  EXPECT_TRUE(same_bytes(a, b));
  EXPECT_EQ(a.choices[0].token_ids, "1,2,3");
  EXPECT_EQ(a.choices[0].logprobs.at("content"), R"({"logprob":-0.5},{"logprob":-1.5})");
  EXPECT_EQ(a.first, 2.5);
  EXPECT_EQ(a.gaps, std::vector<double>{0.5});
  LoadAnswer other = merged;
  other.events[0].data.replace(other.events[0].data.find("-1.5"), 4, "-1.6");
  EXPECT_FALSE(same_bytes(b, read_stream(other)));

  LoadAnswer refused = answer_of({}), cut = answer_of({merged.events[0].data});
  refused.status = 429;
  const LoadFigures f = figures_of(std::vector{one_by_one, merged, refused, cut});
  EXPECT_EQ(f.n_requests, 4);
  EXPECT_EQ(f.n_whole, 2);
  EXPECT_EQ(f.completion_tokens, 6);
  EXPECT_EQ(f.errors.at("429"), 1);
  EXPECT_EQ(f.errors.at("the stream ended early"), 1);
  EXPECT_EQ(f.ttft.p50, 1);
  EXPECT_EQ(f.seconds, 8);
}

TEST(LoadPrompts, AreManyAndTheSameForASeed) {
  const PromptOptions options = {.n_words = 10, .n_shared_words = 4, .seed = 3};
  const std::vector<std::string> a = *make_prompts(options, 50), b = *make_prompts(options, 50);
  EXPECT_EQ(a, b);
  EXPECT_EQ(std::set<std::string>(a.begin(), a.end()).size(), 50u);
  PromptOptions next = options;
  next.run = 1;
  const std::vector<std::string> c = *make_prompts(next, 1);
  EXPECT_EQ(c[0].substr(0, c[0].find("\n\n")), a[0].substr(0, a[0].find("\n\n")));
  EXPECT_NE(c[0], a[0]);
  EXPECT_FALSE(make_prompts({.file = "/nowhere/text"}, 1).ok());
}

LoadRequest stream_of(const std::string& prompt, int max_tokens) {
  return {"/v1/completions", "{\"prompt\":\"" + prompt + "\",\"seed\":1,\"max_tokens\":" + std::to_string(max_tokens) +
                                 ",\"stream\":true}"};
}

TEST(LoadClient, SeesEveryStreamWholeAndNoMoreAtOnceThanItMay) {
  FakeBackend::Options engine;
  engine.max_running = 64;
  TestServer server({}, engine);
  const Target target = {.port = static_cast<uint16_t>(server.port())};
  std::vector<LoadRequest> requests;
  for (int i = 0; i < 40; ++i) requests.push_back(stream_of("p" + std::to_string(i), 20));
  const std::vector<LoadAnswer> answers = run_load(target, requests, 4);
  for (size_t i = 0; i < answers.size(); ++i) {
    const StreamContent content = read_stream(answers[i]);
    ASSERT_EQ(content.choices.size(), 1u) << content.error;
    EXPECT_EQ(content.choices[0].text, FakeBackend::answer("p" + std::to_string(i), 1, 20));
    EXPECT_TRUE(content.done);
    int n_at_once = 0;
    for (const LoadAnswer& other : answers) n_at_once += other.sent < answers[i].sent && other.end > answers[i].sent;
    EXPECT_LT(n_at_once, 4);
  }
}

TEST(LoadClient, KeepsToArrivalTimesAndLeavesOnRequest) {
  TestServer server;
  LoadClient client({.port = static_cast<uint16_t>(server.port())});
  const size_t gone = client.start(stream_of("x", 1'000'000));
  LoadRequest later = stream_of("y", 3);
  later.at = client.now() + 0.2;
  const size_t late = client.start(later);
  ASSERT_TRUE(client.wait(900, [&](const auto& answers) { return !answers[gone].events.empty(); }));
  client.leave(gone);
  ASSERT_TRUE(client.wait_for_all(900));
  EXPECT_NE(client.answers()[gone].error, "");
  EXPECT_EQ(client.answers()[late].due, later.at);
  EXPECT_GE(client.answers()[late].sent, later.at);
  EXPECT_TRUE(eventually([&] { return server.backend.n_live() == 0; }));
  const std::vector<LoadAnswer> nobody = run_load({.port = 1}, {stream_of("x", 1)}, 1);
  EXPECT_NE(nobody[0].error, "");
}

}  // namespace
}  // namespace ibid::load
