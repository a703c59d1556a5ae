#include "text/output/answer_stops.h"

#include <gtest/gtest.h>

namespace ibid {
namespace {

constexpr const char* kHermes = "tools <tool_call> <think>";
constexpr const char* kCall =
    "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"q\": \"the sea is wet\"}}\n</tool_call>";

std::shared_ptr<const AnswerMarkup> markup(const char* source, bool finds_reasoning = true) {
  const auto tools = std::make_shared<const std::vector<DeclaredTool>>(std::vector<DeclaredTool>{{"f", nullptr}});
  return std::make_shared<const AnswerMarkup>(
      AnswerMarkup{{std::make_shared<AnswerFormat>(AnswerFormat::of_template(source)), tools, finds_reasoning, false}});
}

// What is sent, then "|" and the stop. In pieces of any length it is the same.
std::string sent(const std::shared_ptr<const AnswerMarkup>& how, std::string_view text, std::vector<std::string> stops,
                 bool include = false) {
  const auto set = StopSet::compile(stops, {}, include).value();
  const auto in_pieces = [&](size_t len) {
    AnswerStops matcher(set, how);
    std::string out;
    for (size_t at = 0; at < text.size(); at += len) {
      const auto stop = matcher.push(text.substr(at, len), out);
      EXPECT_EQ(text.substr(0, out.size()), out) << "what is sent is what was written";
      if (stop) return out + "|" + stops[static_cast<size_t>(*stop)];
    }
    const auto stop = matcher.finish(out);
    return out + (stop ? "|" + stops[static_cast<size_t>(*stop)] : "");
  };
  const std::string whole = in_pieces(text.size());
  for (const size_t len : {size_t{1}, size_t{2}, size_t{5}}) EXPECT_EQ(in_pieces(len), whole) << text;
  return whole;
}

TEST(AnswerStops, CountInTheTextAlone) {
  const auto hermes = markup(kHermes);
  const std::string thinks = "<think>\nthe sea is wet\n</think>\n\n", call = kCall;
  EXPECT_EQ(sent(hermes, thinks + "Yes, it is.", {"sea is"}), thinks + "Yes, it is.");
  EXPECT_EQ(sent(hermes, thinks + "Yes, the sea is.", {"sea is"}), thinks + "Yes, the |sea is");
  EXPECT_EQ(sent(hermes, thinks + "Yes, the sea is.", {"sea is"}, true), thinks + "Yes, the sea is|sea is");
  EXPECT_EQ(sent(hermes, thinks + call, {"sea is", "name", "</tool_call>", "<tool_call>"}), thinks + call);
  EXPECT_EQ(sent(hermes, "I look.\n" + call + " The sea is", {"sea is"}), "I look.\n" + call + " The |sea is");
  EXPECT_EQ(sent(hermes, "a\n\nb", {"\n\n"}), "a|\n\n");
  EXPECT_EQ(sent(hermes, thinks + "b", {"\n\n"}), thinks + "b") << "blanks after the reasoning are no text";
  EXPECT_EQ(sent(hermes, "ab" + call + "cd", {"bc"}), "ab" + call + "cd") << "a stop lies across nothing";
  EXPECT_EQ(sent(hermes, "a <tool_call> b", {"<tool_call> b"}), "a |<tool_call> b") << "what was no call is text";
  EXPECT_EQ(sent(hermes, "a <tool_", {"<tool_"}), "a |<tool_") << "at the end";
  EXPECT_EQ(sent(hermes, "only the se", {"sea"}), "only the se");
}

TEST(AnswerStops, CountInAllOfAnAnswerWithoutMarkup) {
  const std::string text = "<think>\nthe sea is wet\n</think>";
  EXPECT_EQ(sent(nullptr, text, {"sea is"}), "<think>\nthe |sea is");
  EXPECT_EQ(sent(markup(kHermes, false), text, {"sea is"}), "<think>\nthe |sea is") << "reasoning_format none";
}

TEST(AnswerStops, CountOnlyInTheFinalChannel) {
  const auto channels = markup("<|channel|> to=functions");
  const std::string thinks = "<|channel|>analysis<|message|>the sea is<|end|><|start|>assistant",
                    final_head = "<|channel|>final<|message|>so ";
  EXPECT_EQ(sent(channels, thinks + final_head + "it is.", {"sea is"}), thinks + final_head + "it is.");
  EXPECT_EQ(sent(channels, thinks + final_head + "the sea is.", {"sea is"}), thinks + final_head + "the |sea is");
  EXPECT_EQ(sent(channels, thinks + final_head, {"final", "assistant"}), thinks + final_head);
}

TEST(AnswerStops, PassedPartsHaveNone) {
  AnswerStops stops(StopSet::compile({"ab"}).value(), markup(kHermes));
  std::string out;
  stops.pass("xab a", out);
  EXPECT_EQ(out, "xab a");
  EXPECT_FALSE(stops.push("b and ", out)) << "one that began before";
  EXPECT_TRUE(stops.push("ab", out));
  EXPECT_EQ(out, "xab ab and ");
}

}  // namespace
}  // namespace ibid
