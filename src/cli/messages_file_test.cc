#include "cli/messages_file.h"

#include <gtest/gtest.h>

namespace ibid::cli {
namespace {

std::string rendered(const std::string& source, const std::string& json) {
  auto input = read_chat_input(json, "the file");
  if (!input) return input.error().message;
  auto prompt = ChatTemplate::compile(source)->render(*input);
  return prompt ? prompt->text : prompt.error().message;
}

TEST(MessagesFile, AnObjectKeepsEveryDigit) {
  const std::string all = "{{ messages|tojson }}{{ tools|tojson }}{{ documents|tojson }}{{ a }},{{ b }},{{ c }}";
  EXPECT_EQ(rendered(all, R"({"messages":[{"n":12345678901234567890123}], "tools":[18446744073709551616],
                             "documents":[-99999999999999999999],"a":9007199254740993.0,
                             "chat_template_kwargs": {"b": 12345678901234567890 , "c":1e2}})"),
            R"([{"n": 12345678901234567890123}][18446744073709551616][-99999999999999999999])"
            "9007199254740992.0,12345678901234567890,100.0");
}

TEST(MessagesFile, AListIsMessagesAlone) {
  EXPECT_EQ(rendered("{{ messages|tojson }}", R"( [{"n":12345678901234567890123}] )"),
            R"([{"n": 12345678901234567890123}])");
}

TEST(MessagesFile, NamesAndValuesMayHoldWhatSeparatesThem) {
  EXPECT_EQ(rendered("{{ messages[0].content }}{{ x }}{{ y }}",
                     R"({"mess\u0061ges" : [ {"content":"a,]}\"\\"} ] , "x":"},{\\","y":{"a":[{}]}})"),
            R"(a,]}"\},{\{'a': [{}]})");
  EXPECT_EQ(rendered("{{ x }}", R"({"x":1,"messages":[],"x":2})"), "2");
  EXPECT_EQ(rendered("{{ chat_template_kwargs }}{{ x }}",
                     R"({"messages":[],"chat_template_kwargs":"k","chat_template_kwargs": {"x":3}})"),
            "k3");
}

TEST(MessagesFile, RefusesWhatIsNoConversation) {
  EXPECT_EQ(rendered("", "{}"), "a list of messages, or an object with \"messages\", was expected");
  EXPECT_EQ(rendered("", "5"), "a list of messages, or an object with \"messages\", was expected");
  EXPECT_NE(rendered("", "{").find("no JSON"), std::string::npos);
}

}  // namespace
}  // namespace ibid::cli
