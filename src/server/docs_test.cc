// What docs/api.md and openapi.json say is what the table of fields says.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "base/json.h"
#include "server/openapi.h"
#include "server/parameters.h"
#include "source_paths.h"

namespace ibid {
namespace {

TEST(ApiDocs, TheTablesOfApiMdAreThoseOfTheParser) {
  constexpr std::string_view kBegin =
      "<!-- fields: made from the parser's table; IBID_UPDATE_DOCS=1 build/server_test writes it -->\n";
  constexpr std::string_view kEnd = "<!-- end of fields -->\n";
  const std::string path = source_dir() + "/docs/api.md";
  std::stringstream content;
  content << std::ifstream(path).rdbuf();
  std::string text = content.str();
  const size_t begin = text.find(kBegin), end = text.find(kEnd);
  ASSERT_NE(begin, std::string::npos);
  ASSERT_NE(end, std::string::npos);
  const size_t from = begin + kBegin.size();
  const std::string wanted = parameters_markdown();
  if (const char* update = std::getenv("IBID_UPDATE_DOCS"); update != nullptr && *update == '1') {
    text.replace(from, end - from, wanted);
    std::ofstream(path) << text;
    return;
  }
  EXPECT_EQ(text.substr(from, end - from), wanted);
}

TEST(OpenApi, HasEveryFieldOnceWithADefaultOfItsType) {
  Result<Json> json = parse_json(openapi_json(ApiLimits()));
  ASSERT_TRUE(json.ok()) << json.error().message << " at " << json.error().where;
  const Json* schemas = json->find("components")->find("schemas");
  for (const Parameter& p : parameters()) {
    for (const auto& [endpoint, name] :
         {std::pair{kChatOnly, "ChatRequest"}, std::pair{kCompletionsOnly, "CompletionRequest"}}) {
      if ((p.endpoints & endpoint) == 0) continue;
      const Json* field = schemas->find(name)->find("properties")->find(p.name);
      ASSERT_NE(field, nullptr) << p.name;
      EXPECT_EQ(*field->find("description")->string(), p.meaning);
    }
  }
  for (const char* path : {"/v1/chat/completions", "/v1/completions", "/v1/models", "/tokenize", "/detokenize",
                           "/apply-template", "/health", "/version", "/metrics", "/openapi.json"}) {
    EXPECT_NE(json->find("paths")->find(path), nullptr) << path;
  }
}

}  // namespace
}  // namespace ibid
