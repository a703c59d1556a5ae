// Chat templates against what Python's jinja2 rendered, set up as transformers sets it up
// (tools/make_template_goldens.py); by hand, published templates by SHA-256.
#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "base/cache_folder.h"
#include "base/sha256.h"
#include "format/gguf.h"
#include "format/gguf_vocabulary.h"
#include "outside_data.h"
#include "source_paths.h"
#include "text/jinja/chat_template.h"

namespace ibid {
namespace {

namespace json = boost::json;

std::string text_of(const json::value& v) { return std::string(v.as_string()); }

ChatInput input_of(const json::object& fields, const json::object* more = nullptr) {
  ChatInput input;
  input.now = std::chrono::system_clock::from_time_t(1718461845);
  for (const json::object* object : {&fields, more}) {
    if (object == nullptr) continue;
    for (const auto& [key, value] : *object) {
      std::string name(key);
      if (name == "messages") {
        input.messages = text_of(value);
      } else if (name == "tools") {
        input.tools = text_of(value);
      } else if (name == "add_generation_prompt") {
        input.add_generation_prompt = value.as_bool();
      } else if (name == "bos_token") {
        input.bos_token = text_of(value);
      } else if (name == "eos_token") {
        input.eos_token = text_of(value);
      } else {
        input.extra.emplace_back(name, text_of(value));
      }
    }
  }
  return input;
}

// Compiles once per template; null where it does not compile.
const ChatTemplate* compiled(const std::string& source) {
  static std::map<std::string, std::optional<ChatTemplate>> cache;
  auto [it, fresh] = cache.try_emplace(source);
  if (fresh) {
    auto result = ChatTemplate::compile(source);
    if (result) it->second = *std::move(result);
  }
  return it->second ? &*it->second : nullptr;
}

std::optional<std::string> render(const std::string& source, const ChatInput& input) {
  const ChatTemplate* chat_template = compiled(source);
  if (chat_template == nullptr) return std::nullopt;
  auto prompt = chat_template->render(input);
  if (!prompt) return std::nullopt;
  return prompt->text;
}

std::optional<std::string> wanted(const json::value& v) {
  if (v.is_null()) return std::nullopt;
  return text_of(v);
}

std::vector<json::object> rows(const std::string& name) {
  std::ifstream file(source_dir() + "/tests/conformance/" + name);
  std::vector<json::object> all;
  for (std::string line; std::getline(file, line);) all.push_back(json::parse(line).as_object());
  return all;
}

void show_difference(const std::string& name, const std::optional<std::string>& want,
                     const std::optional<std::string>& got) {
  ADD_FAILURE() << name << "\n want " << (want ? *want : "a refusal") << "\n got  " << (got ? *got : "a refusal");
}

class TemplateGoldens : public ::testing::Test {
 protected:
  void SetUp() override {
    setenv("TZ", "UTC", 1);
    tzset();
  }
};

TEST_F(TemplateGoldens, EveryConstructRendersAsInPython) {
  std::vector<json::object> all = rows("template_goldens.jsonl");
  ASSERT_GT(all.size(), 900u);
  ChatInput context = input_of(all[0].at("context").as_object());
  int n_refused = 0;
  for (const json::object& row : all) {
    if (!row.contains("name")) continue;
    auto want = wanted(row.at("text"));
    auto got = render(text_of(row.at("template")), context);
    if (got != want) show_difference(text_of(row.at("name")), want, got);
    n_refused += !want;
  }
  EXPECT_GT(n_refused, 100);
}

TEST_F(TemplateGoldens, OwnChatTemplatesRenderEveryKindOfConversationAsInPython) {
  std::map<std::string, ChatInput> conversations;
  int n_compared = 0;
  for (const json::object& row : rows("template_goldens.jsonl")) {
    if (row.contains("conversation"))
      conversations[text_of(row.at("conversation"))] = input_of(row.at("input").as_object());
    if (!row.contains("chat_template")) continue;
    for (const auto& [name, text] : row.at("texts").as_object()) {
      auto want = wanted(text);
      auto got = render(text_of(row.at("template")), conversations.at(std::string(name)));
      if (got != want) show_difference(text_of(row.at("chat_template")) + " " + std::string(name), want, got);
      ++n_compared;
    }
  }
  EXPECT_GT(n_compared, 350);
}

// As clients send them: as given to a template that was compiled alone, and in the form that a model's template reads,
// which tools/make_template_families.py knows and probe_form has to find.
TEST_F(TemplateGoldens, EveryFamilyGetsItsMessagesInTheFormThatItReads) {
  std::map<std::string, ChatInput> conversations;
  int n_compared = 0;
  for (const json::object& row : rows("template_family_goldens.jsonl")) {
    if (row.contains("conversation")) {
      ChatInput& input = conversations[text_of(row.at("conversation"))];
      input.messages = text_of(row.at("messages"));
      input.bos_token = "<s>";
      input.eos_token = "</s>";
      continue;
    }
    const std::string family = text_of(row.at("family"));
    const ChatTemplate given = ChatTemplate::compile(text_of(row.at("template"))).value();
    const ChatTemplate fitted = ChatTemplate::for_model(text_of(row.at("template"))).value();
    for (const auto& [chat, field] : {std::pair(&given, "given"), {&fitted, "fitted"}}) {
      for (const auto& [name, text] : row.at(field).as_object()) {
        auto prompt = chat->render(conversations.at(std::string(name)));
        std::optional<std::string> got;
        if (prompt) got = prompt->text;
        if (got != wanted(text)) show_difference(family + " " + field + " " + std::string(name), wanted(text), got);
        ++n_compared;
      }
    }
  }
  EXPECT_GT(n_compared, 400);
}

void compare_by_digest(const std::string& goldens, const std::map<std::string, std::string>& sources) {
  std::map<std::string, ChatInput> conversations;
  int n_compared = 0;
  for (const json::object& row : rows(goldens)) {
    if (row.contains("conversation")) {
      conversations[text_of(row.at("conversation"))] = input_of(row.at("input").as_object());
      continue;
    }
    std::string name = text_of(row.at("template"));
    auto source = sources.find(name);
    if (source == sources.end()) continue;
    auto got = render(source->second, conversations.at(text_of(row.at("name"))));
    std::optional<std::string> digest;
    if (got) digest = sha256_hex(*got);
    auto want = wanted(row.at("sha256"));
    if (digest != want) show_difference(name + " " + text_of(row.at("name")), want, got);
    ++n_compared;
  }
  EXPECT_GE(n_compared, static_cast<int>(90 * sources.size()));
}

class ByHandTemplateGoldens : public TemplateGoldens {};

TEST_F(ByHandTemplateGoldens, TemplatesOfTheFieldRenderAsInPython) {
  const std::filesystem::path folder = outside_data("templates");
  if (folder.empty()) GTEST_SKIP() << "IBID_DATA names no folder with templates/";
  std::map<std::string, std::string> sources;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".jinja") continue;
    std::ifstream file(entry.path(), std::ios::binary);
    std::stringstream all;
    all << file.rdbuf();
    sources[entry.path().filename().string()] = all.str();
  }
  compare_by_digest("template_shared_goldens.jsonl", sources);
}

TEST_F(TemplateGoldens, TheDefaultModelsTemplateRendersAsInPython) {
  std::string path = cache_folder() + "/models/SmolLM2-135M-Instruct.Q4_1.gguf";
  if (const char* given = std::getenv("IBID_MODEL")) path = given;
  if (!std::filesystem::exists(path)) GTEST_SKIP() << "no model at " << path << "; IBID_MODEL names another";
  auto file = open_gguf(path);
  ASSERT_TRUE(file.ok()) << file.error().message;
  auto vocabulary = vocabulary_from_gguf(*file);
  ASSERT_TRUE(vocabulary.ok()) << vocabulary.error().message;
  if (vocabulary->chat_template.find("named SmolLM") == std::string::npos) GTEST_SKIP() << path << " is another model";
  compare_by_digest("template_shared_goldens.jsonl", {{"SmolLM2-135M-Instruct.jinja", vocabulary->chat_template}});
}

}  // namespace
}  // namespace ibid
