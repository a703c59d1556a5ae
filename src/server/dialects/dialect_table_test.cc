// The readers do what the table of dialects states, row by row, and docs/users/apis.md shows it.
#include "server/fields/dialect_table.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>

#include "server/dialects/dialects.h"
#include "server/fields/body_parts.h"
#include "source_paths.h"

namespace ibid {
namespace {

Json parsed(const std::string& text) {
  Result<Json> json = parse_json(text);
  EXPECT_TRUE(json.ok()) << text;
  return json ? *std::move(json) : Json();
}

const char* base_of(Dialect dialect) {
  switch (dialect) {
    case Dialect::kMessages:
      return R"({"max_tokens":5,"messages":[{"role":"user","content":"x"}],"tools":[{"name":"f"},{"name":"g"}]})";
    case Dialect::kResponses:
      return R"({"input":"x"})";
    default:
      return R"({"model":"m","messages":[{"role":"user","content":"x"}]})";
  }
}

Result<DialectBody> read(Dialect dialect, const Json& body) {
  const auto none = [](std::string_view) { return std::shared_ptr<const StoredResponse>(); };
  if (dialect == Dialect::kMessages) return body_of_messages(body);
  if (dialect == Dialect::kResponses) return body_of_response(body, none);
  const bool generate = body.find("prompt") != nullptr || body.find("raw") != nullptr;
  return body_of_ollama(body, generate, ModelInfo{.name = "m", .context_len = 100}, false);
}

// All that the body asks for, or the sentence of its refusal.
std::string made_of(Dialect dialect, const Json& body, bool with_echo) {
  const Result<DialectBody> own = read(dialect, body);
  if (!own) return "refused: " + own.error().message;
  std::string out = own->body.text() + (own->is_stored ? " stored" : "") + own->answer.value_or("");
  if (with_echo && own->echo) out += own->echo->text();
  for (const CallForm& form : own->call_forms) out += " " + form.flat + (form.is_custom ? " custom" : "");
  return out;
}

Json with_field(const Json& base, const std::string& name, const std::string& value) {
  Json out = base;
  std::erase_if(*out.object(), [&](const Json::Member& member) { return member.first == name; });
  set(out, name, parsed(value));
  return out;
}

// A value of each field that is used which makes another request of the base.
const std::map<std::string, std::string> kProbes = {
    {"model", "\"other\""},
    {"messages", R"([{"role":"system","content":"s"},{"role":"user","content":"y"}])"},
    {"input", "\"y\""},
    {"prompt", "\"y\""},
    {"system", "\"s\""},
    {"instructions", "\"s\""},
    {"stop_sequences", "[\"a\"]"},
    {"tools", R"([{"type":"function","name":"h","function":{"name":"h"}},{"type":"custom","name":"c"}])"},
    {"tool_choice", R"({"type":"any"})"},
    {"thinking", R"({"type":"enabled","budget_tokens":5})"},
    {"output_config", R"({"effort":"low"})"},
    {"output_format", R"({"type":"json_schema","schema":{}})"},
    {"text", R"({"format":{"type":"json_object"}})"},
    {"reasoning", R"({"effort":"low"})"},
    {"include", R"(["message.output_text.logprobs"])"},
    {"metadata", R"({"a":"b"})"},
    {"store", "false"},
    {"stream", "false"},
    {"format", "\"json\""},
    {"think", "true"},
    {"options", R"({"num_predict":3})"},
    {"suffix", "\"s\""},
    {"raw", "true"},
    {"keep_alive", "0"},
    {"cache_salt", "\"s\""},
    {"previous_response_id", "\"resp_1\""},
};

TEST(DialectTable, EachFieldIsTreatedAsInItsRow) {
  for (const DialectRow& row : dialect_rows()) {
    if (row.part != DialectPart::kField) continue;
    const std::string name = row.name, where = name + " of " + std::to_string(static_cast<int>(row.dialect));
    Json base = parsed(base_of(row.dialect));
    const bool of_generate = name == "prompt" || name == "system" || name == "suffix" || name == "raw";
    if (row.dialect == Dialect::kOllama && of_generate) base = parsed(R"({"model":"m","prompt":"x"})");
    if (row.dialect == Dialect::kOllama && name == "keep_alive") base = parsed(R"({"model":"m","messages":[]})");
    if (name == "stream") base = with_field(base, name, "true");
    const std::string plain = made_of(row.dialect, base, row.treatment == Treatment::kUsed);
    ASSERT_FALSE(plain.starts_with("refused")) << plain;
    if (row.treatment == Treatment::kUsed) {
      const auto probe = kProbes.find(name);
      const std::string value = probe != kProbes.end() ? probe->second : "1";
      EXPECT_NE(made_of(row.dialect, with_field(base, name, value), true), plain) << where;
    } else if (row.treatment == Treatment::kIgnored) {
      for (const char* value :
           {"true", "7", "\"x\"", "[]", "{}", R"([{"a":1}])", R"({"edits":[{"type":"b"}]})", "null"})
        EXPECT_EQ(made_of(row.dialect, with_field(base, name, value), false), plain) << where << value;
    } else {
      for (const char* value : {"7", "[7]", "{\"a\":1}"}) {
        const Result<DialectBody> refused = read(row.dialect, with_field(base, name, value));
        ASSERT_FALSE(refused.ok()) << where << value;
        EXPECT_EQ(refused.error().where, name);
        EXPECT_EQ(refused.error().kind, ErrorKind::kUnsupported);
      }
      const Json allowed = parsed(row.allowed);
      for (const Json& value : *allowed.array())
        EXPECT_EQ(made_of(row.dialect, with_field(base, name, value.text()), false), plain) << where;
    }
  }
}

// The name, and of a family of names one of it.
std::string one_of(const DialectRow& row) {
  std::string name = row.name;
  if (name.ends_with('*')) name.replace(name.size() - 1, 1, "20990101");
  return name;
}

TEST(DialectTable, EachKindOfToolIsTreatedAsInItsRow) {
  std::vector<std::pair<Dialect, std::string>> ignored = {{Dialect::kMessages, "frobnicate_20990101"},
                                                          {Dialect::kResponses, "frobnicate"}};
  for (const DialectRow& row : dialect_rows()) {
    if (row.part == DialectPart::kTool && row.treatment == Treatment::kIgnored && row.dialect != Dialect::kChat)
      ignored.emplace_back(row.dialect, one_of(row));
  }
  for (const auto& [dialect, type] : ignored) {
    const std::string own = R"({"type":")" + std::string(dialect == Dialect::kMessages ? "custom" : "function") +
                            R"(","name":"f","description":"d"})";
    const std::string left_out = R"({"type":")" + type + R"(","name":"hosted"})";
    const Json base = parsed(base_of(dialect));
    const auto with_tools = [&](const std::string& tools) { return with_field(base, "tools", tools); };
    const std::string plain = made_of(dialect, with_tools("[" + own + "]"), false);
    EXPECT_EQ(made_of(dialect, with_tools("[" + own + "," + left_out + "]"), false), plain) << type;
    EXPECT_EQ(made_of(dialect, with_tools("[" + left_out + "," + own + "]"), false), plain) << type;
    // Alone it is what the request wants.
    const Result<DialectBody> alone = read(dialect, with_tools("[" + left_out + "]"));
    ASSERT_FALSE(alone.ok()) << type;
    EXPECT_EQ(alone.error().where, "tools[0].type");
    // So it is where the choice names it.
    const std::string choice =
        dialect == Dialect::kMessages ? R"({"type":"tool","name":"hosted"})" : R"({"type":")" + type + "\"}";
    const Json chosen = with_field(with_tools("[" + own + "," + left_out + "]"), "tool_choice", choice);
    EXPECT_FALSE(read(dialect, chosen).ok()) << type;
    // Of which none may be called, none is missed.
    const char* none = dialect == Dialect::kMessages ? R"({"type":"none"})" : "\"none\"";
    EXPECT_TRUE(read(dialect, with_field(with_tools("[" + left_out + "]"), "tool_choice", none)).ok()) << type;
  }
}

TEST(DialectTable, EachItemIsTreatedAsInItsRow) {
  for (const DialectRow& row : dialect_rows()) {
    if (row.part != DialectPart::kItem || row.treatment == Treatment::kUsed) continue;
    const std::string item = R"({"type":")" + one_of(row) + R"(","id":"a","name":"b","content":"c","data":"d"})";
    for (const char* role : {"user", "assistant"}) {
      if (row.dialect == Dialect::kResponses && std::string_view(role) == "user") continue;
      const auto body = [&](bool with) {
        const std::string text = R"({"type":"text","text":"t"})";
        if (row.dialect == Dialect::kResponses)
          return parsed(R"({"input":[{"role":"user","content":"x"})" + (with ? "," + item : "") + "]}");
        return parsed(R"({"max_tokens":5,"messages":[{"role":")" + std::string(role) + R"(","content":[)" + text +
                      (with ? "," + item : "") + R"(]},{"role":"user","content":"y"}]})");
      };
      const std::string without = made_of(row.dialect, body(false), false),
                        with = made_of(row.dialect, body(true), false);
      ASSERT_FALSE(without.starts_with("refused")) << without;
      if (row.treatment == Treatment::kIgnored) {
        EXPECT_EQ(with, without) << item;
      } else {
        EXPECT_TRUE(with.starts_with("refused") && with.find(one_of(row)) != std::string::npos) << item << with;
      }
    }
  }
}

// A reader that took a field which no row names would be missing on the page.
TEST(DialectTable, HasARowForEachFieldThatAReaderReads) {
  for (const auto& [dialect, file] :
       {std::pair{Dialect::kMessages, "from_messages.cc"}, std::pair{Dialect::kResponses, "from_responses.cc"},
        std::pair{Dialect::kOllama, "from_ollama.cc"}}) {
    std::stringstream content;
    content << std::ifstream(source_dir() + "/src/server/dialects/" + file).rdbuf();
    const std::string source = content.str();
    std::set<std::string> names;
    const std::regex read(R"re((?:given|text_at|has_any)\(body, "(\w+)"\))re");
    for (std::sregex_iterator i(source.begin(), source.end(), read), end; i != end; ++i) names.insert((*i)[1]);
    const std::regex carried(R"re(carry\(body, (?:out|own),([^;]*);)re"), pair(R"re(\{"(\w+)", ")re");
    for (std::sregex_iterator i(source.begin(), source.end(), carried), end; i != end; ++i) {
      const std::string list = (*i)[1];
      for (std::sregex_iterator j(list.begin(), list.end(), pair); j != end; ++j) names.insert((*j)[1]);
    }
    EXPECT_GT(names.size(), 8u) << file;
    for (const std::string& name : names) {
      const auto rows = dialect_rows();
      EXPECT_TRUE(std::any_of(rows.begin(), rows.end(),
                              [&, d = dialect](const DialectRow& row) {
                                return row.dialect == d && row.part == DialectPart::kField &&
                                       row.treatment == Treatment::kUsed && row.name == name;
                              }))
          << name << " of " << file;
    }
  }
}

}  // namespace
}  // namespace ibid
