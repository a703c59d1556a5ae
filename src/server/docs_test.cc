// docs/users/api.md and openapi.json have what the table of fields has.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "base/json.h"
#include "server/fields/dialect_table.h"
#include "server/fields/openapi.h"
#include "server/fields/parameters.h"
#include "server/observe/metric_table.h"
#include "source_paths.h"

namespace ibid {
namespace {

// Between the comments that begin with `name`, the page has `wanted`.
void expect_in_page(const char* page, const std::string& name, const std::string& wanted) {
  const std::string begin_mark = "<!-- " + name + "; IBID_UPDATE_DOCS=1 build/server_test writes it -->\n",
                    end_mark = "<!-- end of " + name.substr(0, name.find(':')) + " -->\n";
  const std::string path = source_dir() + "/docs/users/" + page;
  std::stringstream content;
  content << std::ifstream(path).rdbuf();
  std::string text = content.str();
  const size_t begin = text.find(begin_mark), end = text.find(end_mark);
  ASSERT_NE(begin, std::string::npos);
  ASSERT_NE(end, std::string::npos);
  const size_t from = begin + begin_mark.size();
  if (const char* update = std::getenv("IBID_UPDATE_DOCS"); update != nullptr && *update == '1') {
    text.replace(from, end - from, wanted);
    std::ofstream(path) << text;
    return;
  }
  EXPECT_EQ(text.substr(from, end - from), wanted);
}

TEST(ApiDocs, TheTablesOfApiMdAreThoseOfTheParser) {
  expect_in_page("api.md", "fields: made from the parser's table", parameters_markdown());
}

TEST(ApiDocs, OthersNamesOfMetricsAreThoseOfTheTable) {
  expect_in_page("metrics.md", "names: made from the table of metrics", metric_names_markdown());
}

TEST(ApiDocs, DialectTableMatchesTheReaders) {
  expect_in_page("apis.md", "dialects: made from the readers' table", dialects_markdown());
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
