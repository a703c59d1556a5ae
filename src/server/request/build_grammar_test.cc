// An answer's grammar is a function of the request, whatever others asked before it.
#include "server/request/build_grammar.h"

#include <gtest/gtest.h>

#include <set>

#include "conformance/fake_backend.h"
#include "server/request/tools.h"

namespace ibid {
namespace {

struct AskedGrammar {
  std::string body;
  int32_t parser = 0;  // 0: none, 1: of an answer that may open its reasoning, 2: that is within it
};

std::vector<AskedGrammar> asked_grammars() {
  const std::string schema = R"({"type":"object","properties":{"a":{"type":"integer"}}})";
  const std::string gbnf = R"("grammar":"root ::= \"<\" [0-9]+")", lazy = R"(,"grammar_lazy":true,"grammar_triggers":)";
  const std::string format = R"("response_format":{"type":"json_schema","json_schema":{"name":"n","schema":)" + schema;
  const std::vector<std::string> texts = {"",
                                          gbnf,
                                          gbnf + lazy + R"([{"type":1,"value":"<"}])",
                                          gbnf + lazy + R"([{"type":2,"value":"<"}])",
                                          gbnf + lazy + R"([{"type":3,"value":"<"}])",
                                          gbnf + lazy + R"([{"type":1,"value":"a"}])",
                                          gbnf + lazy + R"([{"type":1,"value":"<"},{"type":1,"value":"a"}])",
                                          gbnf + lazy + R"([{"type":1,"value":"<a"}])",
                                          R"("grammar":"root ::= \"<\" [0-9]*")",
                                          R"("response_format":{"type":"json_object"})",
                                          format + "}}",
                                          format + R"(,"strict":true}})",
                                          R"("structured_outputs":{"regex":"<[0-9]+"})",
                                          R"("structured_outputs":{"choice":["<","1"]})",
                                          R"("structured_outputs":{"choice":["<1"]})"};
  const auto tools = [&](const std::string& parameters, const char* more, const char* choice) {
    return R"("tools":[{"type":"function","function":{"name":"f","parameters":)" + parameters + more +
           R"(}},{"type":"function","function":{"name":"g"}}],"tool_choice":)" + choice;
  };
  const std::vector<std::string> calls = {"",
                                          tools(schema, "", "\"auto\""),
                                          tools(schema, R"(,"strict":true)", "\"auto\""),
                                          tools(schema, "", "\"required\""),
                                          tools("{}", "", "\"required\""),
                                          tools(schema, "", R"({"type":"function","function":{"name":"g"}})"),
                                          tools(schema, "", "\"none\"")};
  std::vector<AskedGrammar> out;
  for (const std::string& text : texts) {
    for (const std::string& call : calls) {
      std::string body = R"({"messages":[{"role":"user","content":"hi"}])";
      for (const std::string& part : {text, call}) body += part.empty() ? "" : "," + part;
      for (const int32_t parser : {0, 1, 2})
        if (parser > 0 || call.empty()) out.push_back({body + "}", parser});
    }
  }
  return out;
}

// What was made, spelled; or why not.
std::string built(const FakeBackend& backend, const AskedGrammar& asked) {
  const Result<ApiRequest> api = parse_api_request(Endpoint::kChat, *parse_json(asked.body), {});
  if (!api) return api.error().message;
  const AnswerParser::Options parser{.format = backend.answer_format(),
                                     .tools = declared_tools(*api),
                                     .finds_reasoning = true,
                                     .is_reasoning = asked.parser == 2};
  const auto made = build_grammar(*api, backend, "", asked.parser > 0 ? &parser : nullptr);
  if (!made) return made.error().message;
  return *made != nullptr ? grammar::spell((*made)->recorded(), false) : "none";
}

TEST(BuildGrammar, IsTheSameWhicheverWasAskedForBefore) {
  const std::vector<AskedGrammar> all = asked_grammars();
  std::vector<std::string> expected;
  for (const AskedGrammar& asked : all) expected.push_back(built(FakeBackend(), asked));
  EXPECT_GT((std::set<std::string>(expected.begin(), expected.end()).size()), 40u);
  for (const bool backwards : {false, true}) {
    const FakeBackend backend;
    for (size_t k = 0; k < all.size(); ++k) {
      const size_t i = backwards ? all.size() - 1 - k : k;
      ASSERT_EQ(built(backend, all[i]), expected[i]) << all[i].body << all[i].parser;
    }
  }
}

TEST(BuildGrammar, IsNeededWhereverOneIsMade) {
  const FakeBackend backend;
  for (const AskedGrammar& asked : asked_grammars()) {
    const Result<ApiRequest> api = parse_api_request(Endpoint::kChat, *parse_json(asked.body), {});
    if (!api) continue;
    EXPECT_EQ(needs_grammar(*api, *backend.answer_format()), built(backend, asked) != "none")
        << asked.body << asked.parser;
  }
}

}  // namespace
}  // namespace ibid
