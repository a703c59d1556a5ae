#include "server/answer/generation.h"
#include "server/observe/metric_table.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "conformance/fake_backend.h"
#include "server/observe/request_log.h"

namespace ibid {
namespace {

GenerationInfo info(bool stream, int n = 1) {
  GenerationInfo i;
  i.id = "chatcmpl-1";
  i.model = "m";
  i.fingerprint = "f";
  i.seed = 9;
  i.n = i.asked.n = n;
  i.asked.stream = stream;
  i.prompt_lens = {4};
  i.requests = {RequestId{1}};
  i.arrived = 10;
  return i;
}

Output output(const std::string& text, int n_tokens, double at, bool finished = false, int choice = 0) {
  Output o;
  o.request = RequestId{1};
  o.choice = choice;
  o.text = text;
  for (int i = 0; i < n_tokens; ++i) o.tokens.push_back({{TokenId{97}, -0.5f, -0.25f}, {}, 3, 4 + i});
  o.timing = {10.25, 10.5, 11, at};
  o.finished = finished;
  o.reason = FinishReason::kEos;
  return o;
}

std::vector<Output> one(Output o) {
  std::vector<Output> list;
  list.push_back(std::move(o));
  return list;
}

TEST(Generation, OutputWhileAClientDoesNotReadIsOneEvent) {
  Metrics metrics;
  const ByteTokenizer tokenizer;
  Generation generation(info(true), tokenizer, metrics);
  std::string out;
  generation.take(one(output("a", 1, 11)));
  generation.write_events(out);
  EXPECT_EQ(out,
            "data: "
            "{\"id\":\"chatcmpl-1\",\"object\":\"chat.completion.chunk\",\"created\":0,\"model\":\"m\",\"system_"
            "fingerprint\":\"f\",\"seed\":9,"
            "\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":null},\"logprobs\":null,\"finish_"
            "reason\":null}]}\n\n"
            "data: "
            "{\"id\":\"chatcmpl-1\",\"object\":\"chat.completion.chunk\",\"created\":0,\"model\":\"m\",\"system_"
            "fingerprint\":\"f\",\"seed\":9,"
            "\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\"},\"logprobs\":null,\"finish_"
            "reason\":null}]}\n\n");
  generation.take(one(output("b", 1, 11.5)));
  generation.take(one(output("c", 1, 12)));
  EXPECT_EQ(generation.gathered_bytes(), 2u);
  out.clear();
  generation.write_events(out);
  EXPECT_NE(out.find("\"delta\":{\"content\":\"bc\"}"), std::string::npos);
  EXPECT_EQ(out.find("\n\n"), out.size() - 2);
  EXPECT_EQ(generation.gathered_bytes(), 0u);
  generation.take(one(output("", 1, 12.5, true)));
  out.clear();
  generation.write_events(out);
  EXPECT_NE(out.find("\"delta\":{},\"logprobs\":null,\"finish_reason\":\"stop\",\"stop_reason\":null"),
            std::string::npos)
      << out;
  EXPECT_TRUE(out.ends_with("data: [DONE]\n\n"));
  EXPECT_TRUE(generation.done());
}

// The choice of each event, less what comes before it, and "[DONE]".
std::vector<std::string> choices_in(const std::string& events) {
  std::vector<std::string> out;
  for (size_t at = 0, end; (end = events.find("\n\n", at)) != std::string::npos; at = end + 2) {
    const std::string event = events.substr(at, end - at);
    const size_t choice = event.find("{\"index\"");
    out.push_back(choice == std::string::npos ? event : event.substr(choice, event.rfind(']') - choice));
  }
  return out;
}

TEST(Generation, TheReasonComesAfterTheLastTextInAnEventOfItsOwn) {
  Metrics metrics;
  const ByteTokenizer tokenizer;
  const auto stream = [&](GenerationInfo what, Output last) {
    Generation generation(std::move(what), tokenizer, metrics);
    generation.take(one(std::move(last)));
    std::string out;
    generation.write_events(out);
    return choices_in(out);
  };
  EXPECT_EQ(
      stream(info(true), output("ab", 2, 11, true)),
      (std::vector<std::string>{
          R"({"index":0,"delta":{"role":"assistant","content":null},"logprobs":null,"finish_reason":null})",
          R"({"index":0,"delta":{"content":"ab"},"logprobs":null,"finish_reason":null})",
          R"({"index":0,"delta":{},"logprobs":null,"finish_reason":"stop","stop_reason":null})", "data: [DONE]"}));
  EXPECT_EQ(
      stream(info(true), output("", 1, 11, true)),
      (std::vector<std::string>{
          R"({"index":0,"delta":{"role":"assistant","content":null},"logprobs":null,"finish_reason":null})",
          R"({"index":0,"delta":{},"logprobs":null,"finish_reason":"stop","stop_reason":null})", "data: [DONE]"}));
  GenerationInfo text = info(true);
  text.api = &dialect_of(ApiStyle::kCompletions);
  const std::string end = R"({"index":0,"text":"","logprobs":null,"finish_reason":"stop","stop_reason":null})";
  EXPECT_EQ(stream(text, output("ab", 2, 11, true)),
            (std::vector<std::string>{R"({"index":0,"text":"ab","logprobs":null,"finish_reason":null})", end,
                                      "data: [DONE]"}));
  EXPECT_EQ(stream(text, output("", 1, 11, true)), (std::vector<std::string>{end, "data: [DONE]"}));
  text.asked.echo = true;
  text.prompt_texts = {"P"};
  EXPECT_EQ(stream(text, output("", 1, 11, true)),
            (std::vector<std::string>{R"({"index":0,"text":"P","logprobs":null,"finish_reason":null})", end,
                                      "data: [DONE]"}));
}

TEST(Generation, LogprobsGoWithTheirTextAndAreInNoOtherEvent) {
  Metrics metrics;
  const ByteTokenizer tokenizer;
  GenerationInfo what = info(true);
  what.asked.want_logprobs = true;
  Generation generation(what, tokenizer, metrics);
  generation.take(one(output("a", 1, 11, true)));
  std::string out;
  generation.write_events(out);
  const std::vector<std::string> events = choices_in(out);
  ASSERT_EQ(events.size(), 4u) << out;
  EXPECT_NE(events[0].find(R"("content":null},"logprobs":null)"), std::string::npos) << events[0];
  EXPECT_NE(events[1].find(R"("logprobs":{"content":[{"token":"a")"), std::string::npos) << events[1];
  EXPECT_NE(events[2].find(R"("delta":{},"logprobs":null)"), std::string::npos) << events[2];
}

// The text of the answer is what the texts of its tokens come to, as guidance builds it.
TEST(Generation, TokenThatEndsACharacterHasItWhole) {
  Metrics metrics;
  const ByteTokenizer tokenizer;
  const std::string text = "a\xE2\x82\xAC\xC3z";  // a, the euro, a lead byte that nothing follows, z
  const auto taken = [&](bool stream, size_t n_first) {
    GenerationInfo what = info(stream);
    what.asked.want_logprobs = true;
    Generation generation(what, tokenizer, metrics);
    std::string out;
    for (const std::string_view part :
         {std::string_view(text).substr(0, n_first), std::string_view(text).substr(n_first)}) {
      const bool ends = part.data() + part.size() == text.data() + text.size();
      Output o = output("x", 0, 11, ends);
      for (const char c : part) {
        const TokenId id{static_cast<unsigned char>(c)};
        o.tokens.push_back({{id, -0.5f, -0.25f}, {{id, -0.5f, -0.25f}, {TokenId{0x82}, -1, -1}}, 3, 4});
      }
      generation.take(one(std::move(o)));
      if (stream) generation.write_events(out);
    }
    if (!stream) out = generation.response().body;
    std::vector<std::string> tokens;
    for (size_t at = out.find(R"({"token":")"); at != std::string::npos; at = out.find(R"({"token":")", at + 1))
      tokens.push_back(out.substr(at + 10, out.find('"', at + 10) - at - 10));
    return tokens;
  };
  // Each with its two candidates: itself, and a byte that continues a character.
  const std::string bad = "\xEF\xBF\xBD";
  const std::vector<std::string> told = {
      "a", "a", bad, "",        "",        bad,       "", "", "", "\xE2\x82\xAC", "\xE2\x82\xAC", "\xE2\x82\x82",
      "",  "",  bad, bad + "z", bad + "z", "\xC3\x82"};
  for (size_t n = 0; n <= text.size(); ++n) EXPECT_EQ(taken(true, n), told) << n;
  EXPECT_EQ(taken(false, 3), told);
}

TEST(Generation, TextBeforeAFailureIsSentBeforeIt) {
  Metrics metrics;
  const ByteTokenizer tokenizer;
  Output failed = output("", 0, 11);
  failed.fail(invalid("No token is left."));
  Generation generation(info(true), tokenizer, metrics);
  generation.take(one(output("ab", 2, 11)));
  generation.take(one(std::move(failed)));
  std::string out;
  generation.write_events(out);
  const std::vector<std::string> events = choices_in(out);
  ASSERT_EQ(events.size(), 4u) << out;
  EXPECT_NE(events[1].find(R"("content":"ab")"), std::string::npos) << events[1];
  EXPECT_TRUE(events[2].starts_with(R"(data: {"error")")) << events[2];
}

TEST(Generation, TextThatIsHeldBackMakesNoEvent) {
  Metrics metrics;
  const ByteTokenizer tokenizer;
  Generation generation(info(true), tokenizer, metrics);
  std::string out;
  generation.take(one(output("", 1, 11)));
  generation.write_events(out);
  EXPECT_EQ(out, "");
}

TEST(Generation, TimesAreThoseOfTheEnginesClock) {
  Metrics metrics;
  const ByteTokenizer tokenizer;
  Generation generation(info(false), tokenizer, metrics);
  generation.take(one(output("a", 1, 11)));
  generation.take(one(output("bc", 2, 13, true)));
  const RequestTimes times = generation.times(14);
  EXPECT_EQ(times.first_token, 1);
  EXPECT_EQ(times.queue, 0.25);
  EXPECT_EQ(times.prefill, 0.5);
  EXPECT_EQ(times.decode, 2);
  EXPECT_EQ(times.total, 4);
  EXPECT_EQ(times.itl_count, 2);
  EXPECT_EQ(times.itl_sum, 2);
  EXPECT_EQ(generation.completion_tokens(), 3);
  EXPECT_EQ(generation.prompt_tokens(), 4);
}

TEST(Generation, AChoiceThatEndsWithoutATokenHidesNoTimeToFirstToken) {
  Metrics metrics;
  const ByteTokenizer tokenizer;
  for (const bool first_waits : {false, true}) {
    Generation generation(info(false, 2), tokenizer, metrics);
    Output waited = output("", 0, 0, true, first_waits ? 0 : 1);
    waited.timing = {10.25, 0, 0, 0};  // cancelled before it was admitted
    waited.reason = FinishReason::kCancelled;
    if (first_waits) generation.take(one(std::move(waited)));
    generation.take(one(output("a", 1, 12, true, first_waits ? 1 : 0)));
    if (!first_waits) generation.take(one(std::move(waited)));
    const RequestTimes times = generation.times(14);
    EXPECT_TRUE(times.has_first_token) << first_waits;
    EXPECT_EQ(times.first_token, 1) << first_waits;
    EXPECT_EQ(times.queue, 0.25) << first_waits;
  }
}

TEST(Generation, OutputsOfOthersAndOfUnknownChoicesAreDropped) {
  Metrics metrics;
  const ByteTokenizer tokenizer;
  Generation generation(info(false, 2), tokenizer, metrics);
  Output stranger = output("x", 1, 11);
  stranger.request = RequestId{2};
  generation.take(one(std::move(stranger)));
  generation.take(one(output("x", 1, 11, false, 2)));
  generation.take(one(output("x", 1, 11, false, -1)));
  generation.take(one(output("a", 1, 11, true, 0)));
  generation.take(one(output("after the end", 1, 11, true, 0)));
  EXPECT_FALSE(generation.finished());
  generation.take(one(output("b", 1, 11, true, 1)));
  EXPECT_TRUE(generation.finished());
  const std::string body = generation.response().body;
  EXPECT_EQ(body.find("\"x\""), std::string::npos);
  EXPECT_EQ(body.find("after"), std::string::npos);
}

TEST(Generation, ALongAnswerGoesInPartsThatAreTheWhole) {
  Metrics metrics;
  const ByteTokenizer tokenizer;
  for (const int n : {1, 3}) {
    GenerationInfo whole_info = info(false, n), parts_info = info(false, n);
    whole_info.asked.want_logprobs = parts_info.asked.want_logprobs = true;
    Generation whole(whole_info, tokenizer, metrics), parts(parts_info, tokenizer, metrics);
    for (int choice = 0; choice < n; ++choice) {
      whole.take(one(output("abc", 3, 11, true, choice)));
      parts.take(one(output("abc", 3, 11, true, choice)));
    }
    std::string joined;
    int n_parts = 0;
    for (; !parts.done(); ++n_parts) parts.write_part(joined);
    EXPECT_EQ(joined, whole.response().body);
    EXPECT_EQ(n_parts, n) << "a choice at a time";
    EXPECT_FALSE(whole.goes_in_parts());
  }
  Generation large(info(false), tokenizer, metrics);
  large.take(one(output(std::string(300'000, 'x'), 1, 11, true)));
  EXPECT_TRUE(large.goes_in_parts());
  EXPECT_TRUE(large.response().body.empty());
  std::string body;
  large.write_part(body);
  EXPECT_TRUE(large.done());
  EXPECT_EQ(body.substr(body.size() - 2), "}}");
}

TEST(Generation, MemoryOfAnAnswerIsBoundedBeforeItBegins) {
  Request request;
  request.prompt.resize(100);
  request.max_tokens = 50;
  const auto most = [&](const GenerationInfo& i) { return Generation::most_bytes(i, {&request, 1}, 1000, 4096); };
  GenerationInfo plain = info(false), with_records = info(false);
  with_records.asked.want_logprobs = true;
  EXPECT_EQ(most(plain), 50 * 16 + 2 * 50 * 16);
  request.sampling.logprobs = 20;
  EXPECT_GT(most(with_records), 50 * 20 * 12) << "candidates count";
  EXPECT_EQ(most(plain), 3 * 50 * 16) << "where they are kept";
  const int64_t one_choice = most(with_records);
  with_records.n = 16;
  EXPECT_GT(most(with_records), one_choice + 15 * 50 * 20 * 12);
  EXPECT_LT(most(with_records), 16 * one_choice) << "one choice at a time becomes JSON";
  with_records.asked.stream = true;
  EXPECT_LE(most(with_records), 16 * 4096 + 2 * 4 * 4096) << "a stream gathers no more than its backlog";
  request.max_tokens = -1;
  EXPECT_EQ(most(plain), 900 * 48) << "to the end of the context";
}

TEST(Generation, FailedChoiceIsAnErrorWithItsReason) {
  Metrics metrics;
  const ByteTokenizer tokenizer;
  const auto failed = [] {
    Output o = output("", 0, 11);
    o.fail(invalid("No token is left."));
    return o;
  };
  Generation whole(info(false), tokenizer, metrics), stream(info(true), tokenizer, metrics);
  whole.take(one(failed()));
  EXPECT_EQ(whole.response().status, 400);
  stream.take(one(failed()));
  std::string out;
  stream.write_events(out);
  EXPECT_TRUE(out.starts_with("data: {\"error\":{\"message\":\"No token is left.\"")) << out;
}

TEST(Histogram, CountsUpToAndIncludingItsBounds) {
  const double bounds[] = {1, 2};
  Histogram histogram(bounds);
  for (const double value : {0.5, 1.0, 1.5, 2.0, 7.0}) histogram.observe(value);
  std::string text;
  Samples(text, "x_seconds", "").add(histogram);
  EXPECT_EQ(text,
            "x_seconds_bucket{le=\"1\"} 2\nx_seconds_bucket{le=\"2\"} 4\nx_seconds_bucket{le=\"+Inf\"} 5\n"
            "x_seconds_sum 12\nx_seconds_count 5\n");
}

TEST(Metrics, BucketsAreNamedWithoutExponents) {
  EXPECT_EQ(bucket_name(0.0005), "0.0005");
  EXPECT_EQ(bucket_name(0.25), "0.25");
  EXPECT_EQ(bucket_name(1800), "1800");
}

TEST(RequestLog, WritesOneLineWithTheTimesOfTheMetrics) {
  RequestLine line;
  line.request_id = "req-1";
  line.tenant = "a b\n";
  line.method = "POST";
  line.route = "chat";
  line.seconds = 1.5;
  line.has_times = true;
  line.times = {.queue = 0.25,
                .first_token = 0.5,
                .prefill = 0.125,
                .decode = 0.5,
                .total = 1.5,
                .itl_sum = 0.2,
                .itl_count = 4,
                .itl_buckets = {0, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 1},
                .has_first_token = true};
  line.choices = {{"eos", 2}, {"length", 1}};
  line.prompt_tokens = 7;
  line.completion_tokens = 5;
  line.finish = "eos";
  EXPECT_EQ(format_request_line(line, false, 1700000000.25),
            "2023-11-14T22:13:20.250Z id=req-1 tenant=a b? method=POST route=chat status=200 total_ms=1500.000 "
            "queue_ms=250.000 ttft_ms=500.000 "
            "itl_ms=50.000 prompt_tokens=7 cached_tokens=0 completion_tokens=5 preemptions=0 stream=false finish=eos");
  const std::string json = format_request_line(line, true, 1700000000.25);
  Result<Json> parsed = parse_json(json);
  ASSERT_TRUE(parsed.ok()) << json;
  EXPECT_EQ(parsed->find("ttft_ms")->number(), 500);
  EXPECT_EQ(*parsed->find("tenant")->string(), "a b\n");
  EXPECT_EQ(parsed->find("itl_sum_ms")->number(), 200);
  EXPECT_EQ(parsed->find("itl_buckets")->text(), R"({"0.05":3,"+Inf":1})");
  EXPECT_EQ(parsed->find("choices")->text(), R"({"eos":2,"length":1})");
}

TEST(RequestLog, StalledReaderBlocksNoRequest) {
  const std::string path = ::testing::TempDir() + "ibid_log_fifo_" + std::to_string(getpid());
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  const int reader = open(path.c_str(), O_RDONLY | O_NONBLOCK);
  Result<std::unique_ptr<RequestLog>> log = RequestLog::open(path, false, true);
  ASSERT_TRUE(log.ok());
  int n_written = 0;
  for (int i = 0; i < 5000; ++i) n_written += (*log)->add({});
  EXPECT_GT(n_written, 100);
  EXPECT_LT(n_written, 5000);
  close(reader);
  unlink(path.c_str());
}

TEST(RequestLog, FullDiskLosesLinesAndReportsIt) {
  Result<std::unique_ptr<RequestLog>> log = RequestLog::open("/dev/full", false, true);
  ASSERT_TRUE(log.ok());
  int n_lost = 0;
  (*log)->on_lost([&] { ++n_lost; });
  EXPECT_FALSE((*log)->say("x"));
  EXPECT_FALSE((*log)->add({}));
  EXPECT_EQ(n_lost, 2);
}

}  // namespace
}  // namespace ibid
