// A record stores where stop strings count: a replay finds the same ones.
#include <gtest/gtest.h>

#include "base/json.h"
#include "engine/record/event.h"
#include "spelled_tokens.h"
#include "text/output/answer_stops.h"

namespace ibid::record {
namespace {

TEST(RecordedMarkup, FindsTheSameStops) {
  const auto schema = std::make_shared<const Json>(*parse_json(R"({"properties":{"q":{"type":"string"}}})"));
  for (const char* source : {"<tool_call> <think>", "<function= <parameter= <think>", "[TOOL_CALLS] [ARGS] [THINK]",
                             "<|channel|> to=functions", "<|open|>call tool=\"", "<arg_key>"}) {
    auto request = std::make_shared<Request>();
    request->prompt = {TokenId{1}};
    request->stops = StopSet::compile({"stop"}).value();
    const auto tools =
        std::make_shared<const std::vector<DeclaredTool>>(std::vector<DeclaredTool>{{"f", schema}, {"g", nullptr}});
    request->markup = std::make_shared<const AnswerMarkup>(
        AnswerMarkup{{std::make_shared<const AnswerFormat>(AnswerFormat::of_template(source)), tools, true, false}});
    Event event{.kind = EventKind::kSubmit};
    event.request = request;
    int64_t written = 0, read = 0;
    std::string body;
    encode(event, written, body);
    const auto again = decode(body, read, std::make_shared<const SpelledTokens>(std::vector<std::string>{"", "a"}));
    ASSERT_TRUE(again.ok()) << source << again.error().message;
    ASSERT_NE(again->request->markup, nullptr);
    const AnswerParser::Options& options = again->request->markup->parser;
    EXPECT_EQ(options.tools->size(), 2u);
    EXPECT_EQ((*options.tools)[0].parameters->text(), schema->text());
    EXPECT_EQ((*options.tools)[1].parameters, nullptr);
    for (const std::string text :
         {"<think>stop</think>a stop", "<tool_call>{\"name\": \"f\", \"arguments\": {\"q\": \"stop\"}}</tool_call>",
          "<tool_call>\n<function=f>\n<parameter=q>\nstop\n</parameter>\n</function>\n</tool_call> stop",
          "<|channel|>analysis<|message|>stop<|end|><|start|>assistant<|channel|>final<|message|>a stop"}) {
      std::string one, other;
      AnswerStops first(request->stops, request->markup), second(again->request->stops, again->request->markup);
      EXPECT_EQ(first.push(text, one), second.push(text, other)) << source << text;
      EXPECT_EQ(first.finish(one), second.finish(other)) << source << text;
      EXPECT_EQ(one, other) << source << text;
    }
  }
}

}  // namespace
}  // namespace ibid::record
