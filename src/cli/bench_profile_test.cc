// `ibid bench --profile --trace FILE` from the command line to what it prints and writes.
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <regex>
#include <sstream>

#include "base/json.h"
#include "cli/options/options.h"
#include "model/testing/tiny_model.h"
#include "temp_folder.h"

namespace ibid::cli {
namespace {

int run(std::vector<std::string> words) {
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  return main(static_cast<int>(argv.size()), argv.data());
}

// Calls of ops in each phase's table, by the phase's name.
std::map<std::string, int64_t> calls_told(const std::string& text) {
  static const std::regex kPhase(R"((.+): [0-9.]+ ms)"), kOp(R"(\| [a-z_]+(?: \d+ x \d+)? \| (\d+) \| .*%.*)");
  std::map<std::string, int64_t> calls;
  std::istringstream lines(text);
  std::string phase;
  for (std::string line; std::getline(lines, line);) {
    std::smatch match;
    if (std::regex_match(line, match, kPhase)) phase = match[1];
    if (std::regex_match(line, match, kOp)) calls[phase] += std::stoll(match[1]);
  }
  return calls;
}

TEST(BenchProfile, TextAndTraceHaveEachRunOfEachPhasesOps) {
  const TempFolder folder;
  const std::string model = folder.write("tiny.gguf", testing::tiny_gguf({.vocab_size = 260, .tokenizer = true}));
  const std::string trace = folder.path("ops.json");
  ::testing::internal::CaptureStdout();
  ::testing::internal::CaptureStderr();
  const int code = run({"ibid", "bench", model, "-p", "8", "-n", "3", "-d", "0,16", "-r", "1", "-t", "2", "--profile",
                        "--trace", trace});
  const std::string text = ::testing::internal::GetCapturedStdout();
  ASSERT_EQ(code, kOk) << ::testing::internal::GetCapturedStderr();
  ::testing::internal::GetCapturedStderr();
  EXPECT_NE(text.find("\nlimits: "), std::string::npos) << text;

  const std::map<std::string, int64_t> told = calls_told(text);
  std::ifstream file(trace, std::ios::binary);
  const auto json = parse_json(std::string(std::istreambuf_iterator<char>(file), {}));
  ASSERT_TRUE(json.ok());
  std::map<int64_t, std::string> threads;
  std::map<std::string, int64_t> traced;
  int64_t n_products = 0;
  for (const Json& event : *json->find("traceEvents")->array()) {
    const int64_t thread = *event.find("tid")->integer();
    if (*event.find("ph")->string() == "M") {
      threads[thread] = *event.find("args")->find("name")->string();
      continue;
    }
    ++traced[threads.at(thread)];
    EXPECT_GE(event.find("dur")->number(), 0);
    n_products += event.find("name")->string()->starts_with("linear ");
  }
  EXPECT_EQ(told, traced) << text;
  ASSERT_EQ(traced.size(), 4u);
  for (const char* phase : {"pp8", "pp8 @ d16", "tg3", "tg3 @ d16"}) EXPECT_GT(traced[phase], 0) << phase;
  EXPECT_EQ(traced["tg3"], 3 * traced["pp8"]) << "three steps of one token, and one of eight";
  EXPECT_EQ(traced["tg3 @ d16"], traced["tg3"]);
  EXPECT_GT(n_products, 0);
}

}  // namespace
}  // namespace ibid::cli
